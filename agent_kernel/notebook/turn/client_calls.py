"""Runs client calls of a turn, which are calls that the server offers to the clients of the turn. This kernel claims a
call, runs it in its main thread, displays the output, and sends one result."""

from __future__ import annotations

import base64
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_kernel.core.errors import AgentKernelError, Conflict, NotFound, ServerUnreachable
from agent_kernel.notebook.display.media_bundle import BUNDLE, MAX_BUNDLES, bundle_medium
from agent_kernel.notebook.display.render import WAITING, Card
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.capture import Listener, Show
from agent_kernel.notebook.kernel.live_execution import ExecutionOutcome
from agent_kernel.notebook.server_client import ServerClient, quote_segment
from agent_kernel.notebook.turn.client_tool_registry import ClientTool
from agent_kernel.notebook.turn.kernel_parts import KernelParts

Bundle: TypeAlias = Mapping[str, Any]
COALESCE_S = 0.25
MAX_OUTPUT_CHARS = 100_000
"""Limit for the characters of output that are forwarded while a call runs. The result, which the model reads, is sent
separately."""
MAX_MEDIA_CHARS = 24 << 20
"""Limit of base64 characters per call; the server accepts requests of up to 32 MiB."""
TRIES = 3
REFUSED = "{text}\n[The server refused the pictures and the details of this result: {error}]"


@dataclass(frozen=True, slots=True)
class ClientCalls:
    """Runs calls that the server offers. With ``returns_value``, the outcome of a program includes the value of its
    last statement."""

    server: ServerClient
    screen: Screen
    parts: KernelParts
    returns_value: bool = False

    def run(self, turn: str, card: Card, name: str, arguments: Mapping[str, Any]) -> ExecutionOutcome | None:
        """Run a call in this thread, the kernel's main thread, where an interrupt reaches the code. Returns None if
        another client runs the call, or if this kernel cannot run it."""
        in_draft = card.where == "draft"
        found = None if in_draft else self.parts.tools.find(name, returns_value=self.returns_value)
        tool = self._draft_tool(turn, card) if in_draft else found
        if tool is None:
            if not self.parts.tools.knows(name):
                return None
            Claim.decline(self.server, turn, card.call, f"this kernel has no {name}")
            return None
        claim = Claim.take(self.server, turn, card.call)
        if claim is None:
            return None
        return self._look(claim, tool, arguments) if tool.only_reads else self._do(claim, turn, card, tool, arguments)

    def try_programs(self, turn: str, call: str, programs: Sequence[str], names: Sequence[str]) -> None:
        """Run each program in the draft, undo its effects, and send the outcomes to the server as the result of
        ``call``. Displays nothing in the cell."""
        claim = Claim.take(self.server, turn, call)
        if claim is None:
            return
        with claim:
            try:
                outcomes = self.parts.drafts.try_programs(programs, names)
            except KeyboardInterrupt:
                claim.finish("interrupted", "", (), patient=False)
                raise
            claim.finish("success", "", (), details={"tried": [outcome.to_json() for outcome in outcomes]})

    def _draft_tool(self, turn: str, card: Card) -> ClientTool:
        """Return the tool that runs Python in a draft. If the code tries something that the draft does not allow, the
        tool offers the user to run the code in the kernel."""

        def prepare_code(arguments: Mapping[str, Any]) -> str:
            return self.parts.drafts.prepare_code(str(arguments.get("code", "")))

        def run(arguments: Mapping[str, Any], listener: Listener, show: Show) -> ExecutionOutcome:
            returns_value = self.returns_value
            outcome = self.parts.drafts.run(turn, card.code, listener, show, returns_value=returns_value)
            if not outcome.needs_kernel:
                return outcome
            return self.parts.applier.offer_in_kernel(turn, card, self.screen, returns_value=returns_value) or outcome

        return ClientTool(run, code=prepare_code)

    def _look(self, claim: Claim, tool: ClientTool, arguments: Mapping[str, Any]) -> ExecutionOutcome:
        with claim:
            outcome = tool.run(arguments, lambda stream, text: None, self.screen.show)
            claim.finish(outcome.status, outcome.text, outcome.media)
        return outcome

    def _do(
        self, claim: Claim, turn: str, card: Card, tool: ClientTool, arguments: Mapping[str, Any]
    ) -> ExecutionOutcome:
        """Run the call with its output forwarded to the server and displayed in the card."""
        card.code = tool.code(arguments) or card.code

        def listen(stream: str, text: str) -> None:
            claim.output("stderr" if stream == "stderr" else "stdout", text)
            card.add(text)
            self.screen.card(card)

        bundles: list[dict[str, str]] = []

        def show(data: Bundle, metadata: Bundle, transient: Bundle, update: bool) -> None:
            body = None if update else bundle_medium(data)
            if body is not None and len(bundles) < MAX_BUNDLES:
                bundles.append({"mime": BUNDLE, "data": base64.b64encode(body).decode()})
            self.screen.show(data, metadata, transient, update)

        began = card.where
        claim.record = lambda: {
            "where": card.where if card.where != began else "",
            "state": "waiting" if card.state == WAITING else "running",
        }
        claim.tick = lambda: self.screen.flush_from_thread(card)
        started, waited = time.monotonic(), self.parts.person.waited_s
        with claim:
            outcome = tool.run(arguments, listen, show)
            self.parts.variables.ran(turn, card.code, drafted=card.where == "draft")
            waited = self.parts.person.waited_s - waited
            card.seconds = time.monotonic() - started - waited
            card.add(outcome.traceback)
            self.screen.card(card)
            details = {
                "variables": list(outcome.variables),
                "where": card.where if card.where != began else "",
                "waited_s": round(waited, 3),
            }
            media = (*outcome.media, *bundles)
            claim.finish(outcome.status, outcome.text, media, details=details, patient=not outcome.interrupted)
        return outcome


# Claims one client call, that is, a call that the server offers to the clients of a turn. While the call runs, the
# claim is renewed and the call's output is forwarded to the server; at the end, one result is sent.


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
