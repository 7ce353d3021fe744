"""Detects whether the running cell was sent together with other cells, as by "Run All".

No Jupyter message says "Run All". JupyterLab sends one request per cell, all at once: 1 to 3 ms apart, measured with 8
cells. If a user holds a key down to run cells, the requests are at least 33 ms apart. So requests that are at most
TOGETHER_S apart come from one command.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.notebook.kernel.cell_identity import parent_request

log = logging.getLogger(__name__)
TOGETHER_S = 0.025
WAIT_S = 0.05
"""Longest wait in seconds for further requests: the first of several cells starts before the requests of the others
arrive."""
LOOK_S = 0.005
KEPT = 10_000
"""Limit of remembered requests. In a notebook with more cells than this, Run All is not detected for the first cells.
"""


class CellRequest(NamedTuple):
    """A request to run a cell. ``client`` is the session of the front end that sent it, ``date`` the time in seconds by
    the clock of that front end."""

    client: str
    cell: str
    date: float


class RunAllDetector:
    """Records the requests to run cells. Requests of cells that have not started yet are recorded only if this object
    was created before the kernel began to receive messages, as in kernels that our server starts. Requires a front end
    that sends cell ids."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._kernel: Any = getattr(shell, "kernel", None)
        self._seen = RecentEntries[str, CellRequest](KEPT)
        self._lock = threading.Lock()
        self._unhook: Callable[[], None] = lambda: None
        if self._kernel is not None:
            self._unhook = self._hook(self._kernel)
            shell.events.register("pre_run_cell", self._runs)

    def is_sent_with_others(self) -> bool:
        """Return whether the running cell was sent at most TOGETHER_S before or after another cell; False if that is
        unknown."""
        request = parent_request(self._shell)
        self._note(request)
        own_request = self._seen.get(str(request.get("header", {}).get("msg_id")))
        if own_request is None:
            return False
        end = time.monotonic() + WAIT_S
        while not (near := self._has_neighbour(own_request)) and time.monotonic() < end:
            time.sleep(LOOK_S)
        return near

    def close(self) -> None:
        self._unhook()
        if self._kernel is not None:
            self._shell.events.unregister("pre_run_cell", self._runs)

    def _runs(self, info: Any) -> None:
        self._note(parent_request(self._shell))

    def _has_neighbour(self, mine: CellRequest) -> bool:
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
            self._seen[str(header["msg_id"])] = CellRequest(str(header["session"]), cell, _seconds(header["date"]))

    def _hook(self, kernel: Any) -> Callable[[], None]:
        """Wrap the kernel method that receives every shell message, and return a function that restores the method.

        In ipykernel 7 it is ``shell_channel_thread_main``, which a separate thread calls as soon as a message arrives.
        In ipykernel 6 it is ``schedule_dispatch``, which is called only when the shell stream is read: between two
        cells, or when ``_receive`` flushes the stream.
        """
        name = next((name for name in ("shell_channel_thread_main", "schedule_dispatch") if hasattr(kernel, name)), "")
        if not name:
            return lambda: None
        inner = getattr(kernel, name)

        def observe(*args: Any) -> Any:
            try:
                self._read(args[-1])
            except Exception:  # the kernel must get the message, whatever it contains
                log.debug("a message to the kernel could not be read", exc_info=True)
            return inner(*args)

        setattr(kernel, name, observe)
        return lambda: setattr(kernel, name, inner)

    def _read(self, frames: Any) -> None:
        """Record a raw message: identities, delimiter, signature and four JSON parts."""
        session = self._kernel.session
        _, received = session.feed_identities(frames, copy=False)
        signature, *parts = (part.bytes for part in received[:5])
        if session.auth is not None and not hmac.compare_digest(session.sign(parts), signature):
            return  # the signature is invalid; the kernel rejects the message too
        header, _, metadata, content = parts
        if session.unpack(header).get("msg_type") == "execute_request":
            message = {"header": header, "metadata": metadata, "content": content}
            self._note({name: session.unpack(part) for name, part in message.items()})

    def _receive(self) -> None:
        """Move messages that have arrived on the shell socket into the queue. ipykernel 6 itself does this only between
        two cells, because it reads the socket in the thread that runs the cell."""
        if hasattr(self._kernel, "msg_queue"):
            self._kernel.shell_stream.flush()


def _seconds(date: Any) -> float:
    return (date if isinstance(date, datetime) else datetime.fromisoformat(str(date))).timestamp()
