"""A call this kernel has claimed: renewed while it runs, its output passed on, answered once."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import AgentKernelError, Conflict, NotFound, ServerUnreachable
from agent_kernel.notebook.server_client import ServerClient, quoted

COALESCE_S = 0.25
MAX_OUTPUT_CHARS = 100_000
"""Of one call, passed on while it runs. What the model reads of it is sent with the answer."""
MAX_MEDIA_CHARS = 24 << 20
"""In base64, of one call; a request has at most 32 MiB."""
TRIES = 3


class Claim:
    """``with`` it while the code runs. Its thread does HTTP, and calls ``tick`` each COALESCE_S seconds.
    ``record`` is where the call runs and its state, as the cell shows them: the server is told when they change."""

    def __init__(self, server: ServerClient, turn: str, call: str, grant: Mapping[str, Any]) -> None:
        self._server = server
        self._path = f"turns/{turn}/claims/{quoted(call)}"
        self._token = str(grant["token"])
        self._renew_s = float(grant.get("renew_s", 15.0))
        self._lock = threading.Lock()
        self._unsent: list[tuple[str, str]] = []
        self._passed = 0
        self._done = threading.Event()
        self.tick: Callable[[], None] = lambda: None
        self.record: Callable[[], Mapping[str, str]] = dict
        self._thread = threading.Thread(target=self._keep, name=f"agent-claim-{call}", daemon=True)

    @classmethod
    def take(cls, server: ServerClient, turn: str, call: str) -> Claim | None:
        """None when somebody else has it, or it is not on offer any more."""
        try:
            grant = server.call("POST", f"turns/{turn}/claims", {"call": call, "client": f"magic:{server.kernel}"})
        except (Conflict, NotFound):
            return None
        return cls(server, turn, call, grant)

    @staticmethod
    def decline(server: ServerClient, turn: str, call: str, reason: str) -> None:
        """This kernel can not run the call; another client may, at once. Whether anybody hears it is no matter."""
        body = {"call": call, "client": f"magic:{server.kernel}", "declined": reason}
        with contextlib.suppress(AgentKernelError):
            server.call("POST", f"turns/{turn}/claims", body)

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def output(self, stream: str, text: str) -> None:
        with self._lock:
            self._passed += len(text)
            if self._passed <= MAX_OUTPUT_CHARS:
                self._unsent.append((stream, text))

    def finish(
        self,
        status: str,
        text: str,
        media: Sequence[Mapping[str, str]],
        *,
        variables: Sequence[str] = (),
        where: str = "",
        waited_s: float = 0.0,
        patient: bool = True,
    ) -> None:
        """Answers the call. ``variables`` are those that it made or changed, ``where`` it ran if not as it began,
        ``waited_s`` is how long the person was waited for meanwhile, which does not count as time of the call. A turn
        that no longer waits for it is no error. Not ``patient``: one try, half a second at most, for a person who has
        pressed stop."""
        self._done.set()
        if patient:
            self._thread.join(2.0)
        kept = _fitting(media)
        if len(kept) < len(media):
            text = f"{text}\n[{len(media) - len(kept)} of them are too large to be sent to you]"
        details: dict[str, Any] = {"variables": list(variables)} if variables else {}
        details |= {"where": where} if where else {}
        details |= {"waited_s": round(waited_s, 3)} if waited_s else {}
        body = {"action": "finish", "status": status, "text": text, "media": kept, "shown": True}
        body |= {"details": details} if details else {}
        for attempt in range(TRIES if patient else 1):
            try:
                self._post(body, 30.0 if patient else 0.4)
            except (NotFound, Conflict):
                return
            except ServerUnreachable:
                if patient:
                    time.sleep(attempt)
            else:
                return

    def _keep(self) -> None:
        """To the end of the code. A server that does not answer for a while is no reason to let the claim lapse; one
        that no longer waits for it (a stopped turn) is a reason to be silent."""
        renewed, done, told = time.monotonic(), False, dict(self.record())
        while not done:
            done = self._done.wait(COALESCE_S)
            if not done:
                self.tick()
            try:
                self._pass_on()
                record = dict(self.record())
                if not done and (record != told or time.monotonic() - renewed >= self._renew_s):
                    self._post({"action": "renew", **record})
                    renewed, told = time.monotonic(), record
            except ServerUnreachable:
                continue  # what was not passed on is in the answer
            except AgentKernelError:
                return

    def _pass_on(self) -> None:
        with self._lock:
            unsent, self._unsent = self._unsent, []
        joined: list[tuple[str, str]] = []
        for stream, text in unsent:
            if joined and joined[-1][0] == stream:
                joined[-1] = (stream, joined[-1][1] + text)
            else:
                joined.append((stream, text))
        for stream, text in joined:
            self._post({"action": "output", "stream": stream, "text": text})

    def _post(self, body: Mapping[str, Any], timeout: float = 10.0) -> None:
        self._server.call("POST", self._path, {"token": self._token, **body}, timeout=timeout)


def _fitting(media: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The first of them, as many as one request may hold."""
    sizes = itertools.accumulate(len(medium["data"]) for medium in media)
    return [medium for medium, size in zip(media, sizes, strict=True) if size <= MAX_MEDIA_CHARS]
