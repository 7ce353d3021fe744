"""The server's own client of a kernel's main shell. It checks whether the shell is idle, executes code and evaluates
expressions.

The client has its own Jupyter session, because two clients with the same ZMQ identity receive each other's messages
without any error.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.session import Session

from agent_kernel.core.errors import AgentKernelError

log = logging.getLogger(__name__)
IDLE_WITHIN_S = 1.0
CONNECT_WITHIN_S = 20.0
"""Maximum seconds to wait for the first answer of a kernel. A kernel that has just been started answers after a few
seconds."""
LAST_WORDS_S = 1.0
"""Seconds to wait after the reply for the rest of the output. On an overloaded channel, output can be lost
altogether."""

Message = Mapping[str, Any]


@dataclass(slots=True)
class Execution:
    """One execution request in a kernel's shell.

    ``on_message`` receives each message that the execution publishes. ``reply`` is the content of the shell
    reply. ``began`` is set when the shell starts to run the code.
    """

    on_message: Callable[[Message], None]
    reply: asyncio.Future[Mapping[str, Any]]
    began: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class KernelShell:
    """A client of one kernel's main shell.

    ``manager`` is the kernel's manager. ``running_code`` is the first line of the code that another client runs; empty
    if unknown. ``has_answered`` is true if the shell has been idle at least once since this client connected.
    ``reborn`` is true directly after a restart of the kernel.
    """

    def __init__(self, manager: Any, *, reborn: bool = False) -> None:
        self._manager = manager
        self._reborn = reborn
        self._client: Any = None
        self._readers: list[asyncio.Task[None]] = []
        self._executions: dict[str, Execution] = {}
        self.running_code = ""
        self.has_answered = False

    async def is_idle(self) -> bool:
        """Return whether the main shell answers now. Connects first if needed."""
        if self._client is None:
            self._connect()
        started = asyncio.get_running_loop().time()
        while not await self._answers(IDLE_WITHIN_S):
            waited = asyncio.get_running_loop().time() - started
            if waited >= (CONNECT_WITHIN_S if self._may_be_starting else IDLE_WITHIN_S):
                return False
        self.has_answered = True
        return True

    def execute(self, code: str, take: Callable[[Message], None]) -> Execution:
        """Run code like a cell, but without history, execution count or input, and without aborting queued cells on
        an error."""
        content = {
            "code": code,
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return self._send("execute_request", content, take)

    async def evaluate(self, expression: str, within_s: float) -> str:
        """Return the text of the value of an expression; nothing is published. Raises TimeoutError,
        AgentKernelError."""
        content = {
            "code": "",
            "silent": True,
            "store_history": False,
            "user_expressions": {"told": expression},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        reply = await asyncio.wait_for(self._send("execute_request", content, _ignore).reply, within_s)
        result = reply.get("user_expressions", {}).get("told", {})
        if result.get("status") != "ok":
            raise AgentKernelError(
                f"{result.get('ename', 'Error')}: {result.get('evalue', 'the kernel did not answer')}"
            )
        try:
            return str(ast.literal_eval(result["data"]["text/plain"]))
        except (ValueError, SyntaxError, KeyError) as error:
            raise AgentKernelError(
                "The kernel has a text formatter of its own, so the value cannot be read."
            ) from error

    def close(self) -> None:
        """Close the channels and cancel every awaited reply."""
        for reader in self._readers:
            reader.cancel()
        self._readers = []
        for execution in self._executions.values():
            if not execution.reply.done():
                execution.reply.cancel()
        self._executions.clear()
        if self._client is not None:
            self._client.stop_channels()
            self._client = None

    @property
    def _may_be_starting(self) -> bool:
        """Whether the kernel may still be starting: it has not answered yet, and Jupyter has not seen it execute
        anything. After a restart Jupyter's information does not count, because it may be about the kernel's former
        process."""
        return not self.has_answered and (self._reborn or getattr(self._manager, "execution_state", "") != "busy")

    def _connect(self) -> None:
        session = self._manager.session
        own = Session(key=session.key, signature_scheme=session.signature_scheme)
        self._client = self._manager.client(session=own)
        self._client.start_channels(stdin=False, hb=False)
        self._readers = [
            asyncio.create_task(self._read(self._client.get_iopub_msg, self._on_iopub), name="iopub of a kernel"),
            asyncio.create_task(self._read(self._client.get_shell_msg, self._on_reply), name="shell of a kernel"),
        ]

    async def _answers(self, within_s: float) -> bool:
        # Until the subscription has reached the kernel, messages that the kernel publishes are lost.
        probe = self._send("kernel_info_request", {}, _ignore)
        try:
            async with asyncio.timeout(within_s):
                await probe.reply
                await probe.idle.wait()
        except TimeoutError:
            return False
        return True

    def _send(self, kind: str, content: Mapping[str, Any], take: Callable[[Message], None]) -> Execution:
        message = self._client.session.msg(kind, dict(content))
        execution = Execution(take, asyncio.get_running_loop().create_future())
        name = str(message["header"]["msg_id"])
        self._executions[name] = execution
        execution.reply.add_done_callback(lambda _: self._forget_later(name))
        self._client.shell_channel.send(message)
        return execution

    def _forget_later(self, name: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closing
            asyncio.get_running_loop().call_later(2 * LAST_WORDS_S, self._executions.pop, name, None)

    async def _read(self, receive: Callable[..., Any], take: Callable[[Message], None]) -> None:
        while True:
            try:
                message = await receive(timeout=None)
            except (ValueError, TypeError, KeyError) as error:  # a message without a valid signature or format
                log.warning("a message of a kernel cannot be read: %s", error)
                continue
            take(message)

    def _on_iopub(self, message: Message) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "starting":
            self._on_restart()
        execution = self._executions.get(str(message["parent_header"].get("msg_id")))
        if execution is None:
            if kind == "execute_input":
                self.running_code = str(content.get("code", "")).strip().partition("\n")[0][:200]
            elif kind == "status" and message["parent_header"].get("msg_type") == "execute_request":
                self.running_code = self.running_code if content["execution_state"] == "busy" else ""
            return
        if kind == "execute_input":
            execution.began.set()
        elif kind == "status":
            if content["execution_state"] == "idle":
                execution.idle.set()
        else:
            execution.on_message(message)

    def _on_restart(self) -> None:
        """Cancel the replies of code that ran in the kernel's former process."""
        for execution in self._executions.values():
            if execution.began.is_set() and not execution.reply.done():
                execution.reply.cancel()

    def _on_reply(self, message: Message) -> None:
        execution = self._executions.get(str(message["parent_header"].get("msg_id")))
        if execution is not None and not execution.reply.done():
            execution.reply.set_result(message["content"])


def _ignore(message: Message) -> None:
    pass
