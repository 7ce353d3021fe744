"""Claims one client call, that is, a call that the server offers to the clients of a turn. While the call runs, the
claim is renewed and the call's output is forwarded to the server; at the end, one result is sent."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import AgentKernelError, Conflict, NotFound, ServerUnreachable
from agent_kernel.notebook.server_client import ServerClient, quote_segment

COALESCE_S = 0.25
MAX_OUTPUT_CHARS = 100_000
"""Limit for the characters of output that are forwarded while a call runs. The result, which the model reads, is sent
separately."""
MAX_MEDIA_CHARS = 24 << 20
"""Limit of base64 characters per call; the server accepts requests of up to 32 MiB."""
TRIES = 3
REFUSED = "{text}\n[The server refused the pictures and the details of this result: {error}]"


class Claim:
    """A claim on one client call. Use it as a context manager while the call runs. Its thread sends the HTTP requests
    and calls ``tick`` every COALESCE_S seconds. The function ``record`` returns the place where the call runs, and the
    state of the call. If one of them changes, the thread reports the change to the server."""

    def __init__(self, server: ServerClient, turn: str, call: str, grant: Mapping[str, Any]) -> None:
        self._server = server
        self._path = f"turns/{turn}/claims/{quote_segment(call)}"
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
        """Claim ``call``. Returns None if another client has claimed the call or the server no longer offers it."""
        try:
            grant = server.call("POST", f"turns/{turn}/claims", {"call": call, "client": f"magic:{server.kernel}"})
        except (Conflict, NotFound):
            return None
        return cls(server, turn, call, grant)

    @staticmethod
    def decline(server: ServerClient, turn: str, call: str, reason: str) -> None:
        """Tell the server that this kernel cannot run the call, so that another client may run it at once. Errors
        are ignored: the offer expires anyway."""
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
        details: Mapping[str, Any] | None = None,
        patient: bool = True,
    ) -> None:
        """Send the result of the call. If the turn no longer waits for the result, nothing happens and no error is
        raised. If the server refuses the result, an error with its text and the reason is sent instead; raises
        AgentKernelError if that is refused too.

        ``details`` are for the tool that offered the call; empty details are not sent. They can be ``variables`` (the
        variables that the call created or changed), ``where`` (the place in which the call ran, if it is not the place
        in which it started), ``waited_s`` (seconds of waiting for the user, which do not count as run time), and
        whatever else the tool defines. With ``patient`` False, the request is sent once and may take half a second,
        because the user has pressed stop."""
        self._done.set()
        if patient:
            self._thread.join(2.0)
        fitting_media = _fitting(media)
        if len(fitting_media) < len(media):
            text = f"{text}\n[{len(media) - len(fitting_media)} of them are too large to be sent to you]"
        body: dict[str, Any] = {
            "action": "finish",
            "status": status,
            "text": text,
            "media": fitting_media,
            "shown": True,
        }
        if nonempty := {name: value for name, value in (details or {}).items() if value}:
            body["details"] = nonempty
        for attempt in range(TRIES if patient else 1):
            try:
                self._post(body, 30.0 if patient else 0.4)
            except (NotFound, Conflict):
                return
            except ServerUnreachable:
                if patient:
                    time.sleep(attempt)
            except AgentKernelError as error:
                if body["status"] == "error" and "media" not in body:
                    raise
                body = {"action": "finish", "status": "error", "text": REFUSED.format(text=text, error=error)}
            else:
                return

    def _keep(self) -> None:
        """Forward output and renew the claim until the call ends. Keep trying when the server does not answer, so
        that the claim does not lapse; stop when the server refuses, because the turn no longer waits for the call."""
        renewed, done, reported = time.monotonic(), False, dict(self.record())
        while not done:
            done = self._done.wait(COALESCE_S)
            if not done:
                self.tick()
            try:
                self._pass_on()
                record = dict(self.record())
                if not done and (record != reported or time.monotonic() - renewed >= self._renew_s):
                    self._post({"action": "renew", **record})
                    renewed, reported = time.monotonic(), record
            except ServerUnreachable:
                continue  # the result of the call contains the output that was not forwarded
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
    """Return as many of the media, from the first one on, as fit into one request."""
    sizes = itertools.accumulate(len(medium["data"]) for medium in media)
    return [medium for medium, size in zip(media, sizes, strict=True) if size <= MAX_MEDIA_CHARS]
