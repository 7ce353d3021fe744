"""Implements a tool that returns recorded results and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.cli.replaying.recorded_turn import RecordedTurn, same_call
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.code.python import SANDBOXED

NOT_RECORDED = "This call was not recorded, so there is no result for it. Answer from the results that there are."


class RecordedTool:
    """One tool as a recorded turn used it. A call with the arguments of a recorded call gets the result of that call;
    each result is returned only once. ``unknown`` collects the calls that were not recorded."""

    def __init__(self, name: str, turn: RecordedTurn) -> None:
        self.spec = _spec(name, [call.arguments for call in turn.calls if call.name == name])
        self._left = [call for call in turn.calls if call.name == name]
        self._results = turn.results
        self.unknown: list[ToolCall] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        asked = ToolCall(context.call.id, self.spec.name, arguments)
        known = next((call for call in self._left if same_call(call, asked)), None)
        result = self._results.get(known.id) if known else None
        if known is None or result is None:
            self.unknown.append(asked)
            return ToolOutput(NOT_RECORDED, "error")
        self._left.remove(known)
        return ToolOutput(result.text, result.status or "success", result.media)


def _spec(name: str, given: Sequence[Mapping[str, Any]]) -> ToolSpec:
    """Return the specification of a tool. For python, this is the specification of the sandbox's tool. For any other
    tool, the specification states only the names of the arguments, which are taken from the recorded arguments
    ``given``."""
    if name == SANDBOXED.name:
        return SANDBOXED
    names = dict.fromkeys(argument for arguments in given for argument in arguments)
    schema = {"type": "object", "properties": {argument: {} for argument in names}}
    return ToolSpec(name, f"The tool {name}, as it was used before.", schema, kind=SANDBOXED.kind, where="sandbox")
