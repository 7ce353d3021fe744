"""Execute requests as they come to this kernel: was the cell that runs now sent together with others?

No message says "Run All". JupyterLab sends one request for each cell, all at once: 1 to 3 ms apart, measured with 8
cells. Keys held down come 33 ms apart at the fastest, so what was sent within TOGETHER_S was sent by one command.
"""

from __future__ import annotations

import contextlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent_kernel.notebook.kernel.cell_identity import parent

TOGETHER_S = 0.025
WAIT_S = 0.05
"""The first of several cells begins to run before the others are here; it waits for them this long at most."""
LOOK_S = 0.005
KEPT = 10_000
"""A Run All of a longer notebook is not seen as one at its beginning."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """``client`` is the session of the front end, by whose clock ``date`` was taken (seconds)."""

    client: str
    cell: str
    date: float


class Arrivals:
    """Knows the cells that ran; and those that wait, if it was made before the kernel began to listen, as it is in
    kernels that our server starts. Only cells whose front end sends their id are known."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._kernel: Any = getattr(shell, "kernel", None)
        self._seen: OrderedDict[str, Arrival] = OrderedDict()
        self._lock = threading.Lock()
        self._unhook: Callable[[], None] = lambda: None
        if self._kernel is not None:
            self._unhook = self._hook(self._kernel)
            shell.events.register("pre_run_cell", self._runs)

    def together(self) -> bool:
        """The cell that runs now was sent within TOGETHER_S of another one. False where that can not be known."""
        request = parent(self._shell)
        self._note(request)
        mine = self._seen.get(str(request.get("header", {}).get("msg_id")))
        if mine is None:
            return False
        end = time.monotonic() + WAIT_S
        while not (near := self._near(mine)) and time.monotonic() < end:
            time.sleep(LOOK_S)
        return near

    def close(self) -> None:
        self._unhook()
        if self._kernel is not None:
            self._shell.events.unregister("pre_run_cell", self._runs)

    def _runs(self, info: Any) -> None:
        self._note(parent(self._shell))

    def _near(self, mine: Arrival) -> bool:
        self._receive()
        with self._lock:
            return any(
                other.client == mine.client and other.cell != mine.cell and abs(other.date - mine.date) < TOGETHER_S
                for other in self._seen.values()
            )

    def _note(self, request: dict[str, Any]) -> None:
        header, content = request.get("header", {}), request.get("content", {})
        cell = request.get("metadata", {}).get("cellId")
        if (
            header.get("msg_type") != "execute_request"
            or content.get("silent")
            or not isinstance(cell, str)
            or not cell
        ):
            return
        with contextlib.suppress(ValueError, TypeError, KeyError), self._lock:
            self._seen[str(header["msg_id"])] = Arrival(str(header["session"]), cell, _seconds(header["date"]))
            while len(self._seen) > KEPT:
                self._seen.popitem(last=False)

    def _hook(self, kernel: Any) -> Callable[[], None]:
        """ipykernel 7 hands every message of the shell channel to ``shell_channel_thread_main``, in a thread that is
        never busy; ipykernel 6 to ``schedule_dispatch``, once somebody asks the stream for what came."""
        name = next((name for name in ("shell_channel_thread_main", "schedule_dispatch") if hasattr(kernel, name)), "")
        if not name:
            return lambda: None
        inner = getattr(kernel, name)

        def heard(*args: Any) -> Any:
            with contextlib.suppress(Exception):  # whatever a message holds, the kernel gets it
                self._read(args[-1])
            return inner(*args)

        setattr(kernel, name, heard)
        return lambda: setattr(kernel, name, inner)

    def _read(self, frames: Any) -> None:
        """Of a message as it came from the socket: identities, delimiter, signature and four JSON parts."""
        session = self._kernel.session
        _, received = session.feed_identities(frames, copy=False)
        signature, *parts = (part.bytes for part in received[:5])
        if session.auth is not None and not hmac.compare_digest(session.sign(parts), signature):
            return  # the kernel refuses it too, a moment later
        header, _, metadata, content = parts
        if session.unpack(header).get("msg_type") == "execute_request":
            named = {"header": header, "metadata": metadata, "content": content}
            self._note({name: session.unpack(part) for name, part in named.items()})

    def _receive(self) -> None:
        """ipykernel 6 reads its shell socket in the thread that runs the cell: what came meanwhile is taken over into
        its own queue, as it does itself between two cells."""
        if hasattr(self._kernel, "msg_queue"):
            self._kernel.shell_stream.flush()


def _seconds(date: Any) -> float:
    return (date if isinstance(date, datetime) else datetime.fromisoformat(str(date))).timestamp()
