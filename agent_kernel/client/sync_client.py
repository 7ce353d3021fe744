"""Wraps the objects of the async client for synchronous code; their coroutines run on a separate thread."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from agent_kernel.client.client import Client, FilesClient, SkillsClient
from agent_kernel.client.file import File
from agent_kernel.client.result import Result
from agent_kernel.client.sessions_client import SessionsClient
from agent_kernel.client.turn import Turn
from agent_kernel.core.errors import Conflict
from agent_kernel.core.shielded_await import cancel_tasks

BRIDGED = (Client, SessionsClient, FilesClient, SkillsClient, File, Result, Turn)
CLOSE_S = 15.0
SHUTDOWN = "cannot schedule new futures"
"""Part of the error message that a thread pool raises after the interpreter has ended. Only a daemon thread can still
wait for a result then, and this thread ends too."""


class EventLoopBridge:
    """One event loop in one daemon thread; ``close`` ends both, and so does the exit of the interpreter."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="agent-kernel client", daemon=True)
        self._thread.start()
        self._closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._dropped: set[asyncio.Task[None]] = set()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._closed = False
        self._ending = False
        self._exiting = False
        atexit.register(self._close_at_exit)

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Call ``work``, run the coroutine that it returns with a copy of the caller's context variables, and wait for
        the result. An interrupt cancels the coroutine.

        Raises the coroutine's exception, and Conflict if called on the bridge's own thread or after ``close``.
        """
        if threading.current_thread() is self._thread:
            raise Conflict(
                "A callback on the client's thread cannot use SyncClient: it would wait for itself.",
                hint="Use the async Client in this callback.",
            )
        if self._exiting and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()  # This is a daemon thread: it ends with the interpreter, without an error.
        if self._closed:
            raise closed_error()
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        context = contextvars.copy_context()
        tasks: list[asyncio.Task[Any]] = []
        self._waiting.add(done)
        done.add_done_callback(self._waiting.discard)

        def begin() -> None:
            if self._ending:
                self._refuse(done)
                return
            task = self._loop.create_task(work(), context=context)
            tasks.append(task)
            task.add_done_callback(functools.partial(self._settle, done))

        try:
            self._loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the loop ended after the check
            self._refuse(done)
        try:
            return done.result()
        except BaseException:
            if not done.done():  # After an interrupt, cancel the coroutine and wait until it has ended.
                self._loop.call_soon_threadsafe(lambda: tasks and tasks[0].cancel())
                concurrent.futures.wait([done], CLOSE_S)
            raise

    def drop(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close an object that the program no longer uses, by running the coroutine of ``close``. Does not wait for the
        end if the garbage collector calls this on the bridge's own thread."""
        if self._closed:
            return
        if threading.current_thread() is self._thread:
            self._dropped.add(task := self._loop.create_task(close()))
            task.add_done_callback(self._dropped.discard)
        else:
            self.run(close)

    def call_on_close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._closing.append(close)

    def close(self) -> None:
        """Close the bridge. Idempotent."""
        if self._closed:
            return
        atexit.unregister(self._close_at_exit)
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CLOSE_S)
        except (TimeoutError, RuntimeError):
            pass  # The thread is a daemon, so it does not keep the interpreter alive.
        finally:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
            for done in list(self._waiting):  # these are slow to stop, or were submitted while the loop was ending
                self._refuse(done)

    def _close_at_exit(self) -> None:
        """Close the bridge when the interpreter exits, before it kills the bridge's daemon thread.

        Calls that other threads still wait for get neither a result nor an error: these threads are daemon threads too
        and end with the interpreter.
        """
        self._exiting = True
        self.close()

    def _refuse(self, done: concurrent.futures.Future[Any]) -> None:
        if not self._exiting:
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # both threads may set the result
                done.set_exception(closed_error())

    def _settle(self, done: concurrent.futures.Future[Any], task: asyncio.Task[Any]) -> None:
        if self._ending:
            self._refuse(done)
        elif task.cancelled():
            done.cancel()
            done.set_running_or_notify_cancel()
        elif error := task.exception():
            if SHUTDOWN not in str(error):
                done.set_exception(error)
        else:
            done.set_result(task.result())

    async def _end(self) -> None:
        self._ending = True
        own = asyncio.current_task()
        await cancel_tasks(*(task for task in asyncio.all_tasks() if task is not own))
        await self._loop.shutdown_asyncgens()
        for close in reversed(self._closing):
            await close()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class SyncProxy:
    """A synchronous wrapper of one object. Its coroutine methods become ordinary methods, its async iterators become
    iterators, and objects with such methods that it returns are wrapped too."""

    def __init__(self, target: Any, bridge: EventLoopBridge) -> None:
        self._target = target
        self._bridge = bridge

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._target, name)
        if not inspect.ismethod(value):
            return _bridge_value(value, self._bridge)

        @functools.wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            targets = [_target(argument) for argument in args]
            named = {name: _target(each) for name, each in kwargs.items()}
            return self._bridge.run(lambda: _call_bridged(value, targets, named, self._bridge))

        return call

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return repr(self._target)

    def __str__(self) -> str:
        return str(self._target)

    def __eq__(self, other: object) -> bool:
        return bool(self._target == _target(other))

    def __hash__(self) -> int:
        return hash(self._target)

    def __iter__(self) -> Iterator[Any]:
        return _iterate(aiter(self._target), self._bridge)

    def __enter__(self) -> Any:
        self._bridge.run(self._target.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._bridge.run(functools.partial(self._target.__aexit__, *error))

    def close(self) -> None:
        self._bridge.run(self._target.aclose)


class SyncClient(SyncProxy):
    """``Client`` for synchronous code, with the same arguments and methods: ``run``, ``stream``, ``sessions``,
    ``files``, ...

    It may be used from any thread, also in a notebook, where an event loop is already running; callbacks run in threads
    of their own. Close it: ``with SyncClient() as client``.
    """

    def __init__(self, url: str | None = None, **options: Any) -> None:
        client = Client(url, **options)
        super().__init__(client, EventLoopBridge())
        self._bridge.call_on_close(client.aclose)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything that the client runs, and close it."""
        self._bridge.close()


def closed_error() -> Conflict:
    return Conflict("This SyncClient is closed.", hint="Create a new SyncClient.")


async def _call_bridged(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], bridge: EventLoopBridge
) -> Any:
    value = function(*args, **kwargs)
    return _bridge_value(await value if inspect.isawaitable(value) else value, bridge)


def _bridge_value(value: Any, bridge: EventLoopBridge) -> Any:
    if isinstance(value, BRIDGED):
        return SyncProxy(value, bridge)
    if isinstance(value, list | tuple) and any(isinstance(item, BRIDGED) for item in value):
        return type(value)(_bridge_value(item, bridge) for item in value)
    return _iterate(value, bridge) if isinstance(value, AsyncIterator) else value


def _target(value: Any) -> Any:
    if isinstance(value, SyncProxy):
        return value._target
    return type(value)(_target(item) for item in value) if type(value) in (list, tuple) else value


def _iterate(events: AsyncIterator[Any], bridge: EventLoopBridge) -> Iterator[Any]:
    """Iterate synchronously; the async iterator is closed together with this generator."""
    try:
        while True:
            try:
                yield _bridge_value(bridge.run(lambda: _next(events)), bridge)
            except StopAsyncIteration:
                return
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            bridge.drop(close)


async def _next(events: AsyncIterator[Any]) -> Any:
    return await anext(events)
