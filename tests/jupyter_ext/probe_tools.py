"""A server extension for tests: one harmless tool of every kind, beside the server's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from jupyter_ext.services import SETTING

UNKNOWN = "a kind that nobody knows"
KINDS = {
    "auto": (
        *("python.sandbox", "python.draft", "shell", "files.read", "files.write", "skills", "sessions.read"),
        *("notebook.read", "function"),
    ),
    "ask": (
        *("python.live", "notebook.edit", "notebook.run", "mcp", "dispatch", "function.effects", "web", "path"),
        UNKNOWN,
    ),
}
"""What happens to each kind where nobody says anything."""
EVERY = tuple(kind for kinds in KINDS.values() for kind in kinds)


def name_of(kind: str) -> str:
    return "probe_" + kind.replace(".", "_").replace(" ", "_")


class Probe:
    def __init__(self, kind: str) -> None:
        schema = {"type": "object", "properties": {}}
        self.spec = ToolSpec(
            name_of(kind), f"Of the kind {kind}.", schema, kind=kind, shared_state=False, editable="code"
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(" ".join(["it ran", *map(str, arguments.values())]))


class Probes:
    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        return OfferedTools(tuple(map(Probe, EVERY)))

    async def aclose(self) -> None: ...


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "tests.jupyter_ext.probe_tools"}]


def _load_jupyter_server_extension(server: Any) -> None:
    server.web_app.settings[SETTING].runtime.sources.append(Probes())
