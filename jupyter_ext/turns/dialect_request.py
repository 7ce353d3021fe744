"""What a request of a dialect comes to, before anything of this server was looked up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent_kernel.core.messages import Message
from agent_kernel.core.request import TurnRequest

AGENT = "agent/"
"""Before the name of a model: the agent with the server's tools."""
DEFAULT = "default"
"""The server's own engine, whatever model that has."""
DISPATCH = "dispatch"
"""The kind of a function whose calls the server sends to its dispatch_url."""


@dataclass(frozen=True, slots=True)
class Given:
    """A file that came with the request: the id of one that is here, or its name and bytes."""

    id: str = ""
    name: str = ""
    mime: str = ""
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """``model`` is the name as the client said it. ``groups`` are tools of the server that the request turns on by
    itself where the model is a plain one. ``rounds``: it names a number of rounds, which turns on what the server has
    from elsewhere (MCP, functions, dispatch). ``only``: nothing but ``groups``, whatever model and rounds say.

    ``session`` is the one that the client names; empty: none, and nothing is listed. ``kept``: the session of such a
    call lasts all the same, because it can be continued by another id later. ``streams``: somebody follows, who could
    answer questions. ``spoken`` is the conversation without the traffic of the server's tools that the client
    repeats, where it repeats any: a session that is here has that itself. ``route`` is the dialect's.
    """

    model: str
    request: TurnRequest
    groups: tuple[str, ...] = ()
    session: str = ""
    files: tuple[Given, ...] = ()
    streams: bool = False
    kept: bool = False
    route: str = ""
    spoken: tuple[Message, ...] = ()
    only: bool = False

    @property
    def agent(self) -> bool:
        return self.model.startswith(AGENT)

    @property
    def name(self) -> str:
        """Of the engine or model; empty: the server's own."""
        name = self.model.removeprefix(AGENT)
        return "" if name == DEFAULT else name

    @property
    def engaged(self) -> tuple[str, ...] | None:
        """The tools of the server that the turn may have (None: all), as ``TurnRequest.tools``."""
        if self.only:
            return (*self.groups, *(spec.name for spec in self.request.functions if spec.kind == DISPATCH))
        if self.agent:
            return None
        elsewhere = ("mcp", "functions", "dispatch") if self.request.max_tool_rounds else ()
        return (*self.groups, *elsewhere)

    def dispatched(self) -> Asked:
        """The same request where the server runs the calls of its functions (``max_tool_rounds`` above 0), by its
        dispatch_url; without rounds, or with 0, the client runs them and nothing changes."""
        if not self.request.max_tool_rounds:
            return self
        functions = tuple(replace(spec, kind=DISPATCH, where="server") for spec in self.request.functions)
        return replace(self, request=replace(self.request, functions=functions))
