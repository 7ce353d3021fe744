"""Runs client calls of a turn, which are calls that the server offers to the clients of the turn. This kernel claims a
call, runs it in its main thread, displays the output, and sends one result."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_kernel.notebook.display.media_bundle import BUNDLE, MAX_BUNDLES, bundle_medium
from agent_kernel.notebook.display.render import WAITING, Card
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.capture import Listener, Show
from agent_kernel.notebook.kernel.live_execution import ExecutionOutcome
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn.call_claim import Claim
from agent_kernel.notebook.turn.client_tool_registry import ClientTool
from agent_kernel.notebook.turn.kernel_parts import KernelParts

Bundle: TypeAlias = Mapping[str, Any]


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
