"""The ``python`` tool, in two places: the live kernel of the notebook, or the session's sandbox worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_kernel.events import CallOutput, StateLost
from agent_kernel.protocols import RunResult, Sandbox, ToolContext, ToolOutput, ToolSpec, Work
from agent_kernel.tools.offers import Offers
from agent_kernel.tools.source import Occasion, Offered

PARAMETERS: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python code to run"}},
        "required": ["code"],
        "additionalProperties": False,
    }
)
LIVE = ToolSpec(
    "python",
    "Run Python code in the person's notebook kernel: it sees and changes their variables. Printed text, the value of "
    "the last expression and figures come back.",
    PARAMETERS,
    kind="python.live",
    where="live",
)
DRAFT = ToolSpec(
    "python",
    "Run Python code on a copy of the person's notebook kernel: it sees their variables. What it changes stays in the "
    "copy until they keep it. Printed text, the value of the last expression and figures come back.",
    PARAMETERS,
    kind="python.draft",
    where="draft",
)
SANDBOXED = ToolSpec(
    "python",
    "Run Python code in an isolated session: no network, files only in its work directory. Variables persist between "
    "calls. Printed text, the value of the last expression and figures come back.",
    PARAMETERS,
    kind="python.sandbox",
    where="sandbox",
)


class LivePython:
    """Runs in the kernel of the notebook the turn came from, by one of that notebook's clients."""

    spec = LIVE

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._offers.offer(context)


class DraftPython:
    """Runs in a copy of that kernel, which only the kernel itself can make: by its own magic."""

    spec = DRAFT

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._offers.offer(context)


class SandboxPython:
    """``read``: directories the code may read beside its work directory."""

    spec = SANDBOXED

    def __init__(self, sandbox: Sandbox, read: Sequence[Path] = (), timeout_s: float = 60.0) -> None:
        self._sandbox = sandbox
        self._read = tuple(read)
        self._timeout_s = timeout_s

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        def announce(stream: str, text: str) -> None:
            context.emit(CallOutput(context.call.id, text, stream))

        work = Work(arguments["code"], timeout_s=self._timeout_s)
        result = await self._sandbox.run(context.key, work, on_output=announce, read=self._read)
        if result.lost:
            context.emit(StateLost(result.lost))
        return ToolOutput(told(result), result.status, result.media)


class PythonTools:
    """The ``python`` of each turn: where the request says it runs."""

    def __init__(self, sandbox: Sandbox, offers: Offers, timeout_s: float) -> None:
        self._sandbox = sandbox
        self._offers = offers
        self._timeout_s = timeout_s

    async def offer(self, occasion: Occasion) -> Offered:
        if not occasion.wants("python"):
            return Offered()
        if occasion.request.where == "live":
            return Offered((LivePython(self._offers),))
        if occasion.request.where == "draft":
            return Offered((DraftPython(self._offers),))
        read = [occasion.notebook_dir] if occasion.notebook_dir else []
        return Offered((SandboxPython(self._sandbox, read, self._timeout_s),))

    async def aclose(self) -> None: ...


def told(result: RunResult) -> str:
    """What the model reads: output, value, error, figures; never an empty text."""
    parts = [
        result.lost and f"({result.lost})",
        result.stdout.rstrip(),
        result.stderr.rstrip(),
        result.value or "",
        result.error or "",
        f"[{len(result.media)} figure(s) shown]" if result.media else "",
    ]
    return "\n".join(part for part in parts if part) or "(no output)"
