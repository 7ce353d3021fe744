"""A parsed request of a dialect (chat completions, Responses, Messages), before anything is looked up on this
server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agent_kernel.core.messages import Message
from agent_kernel.core.turn_request import TurnRequest

AGENT = "agent/"
"""Prefix of a model name that selects the agent with the server's tools."""
DEFAULT = "default"
"""The model name that stands for the server's default engine."""
DISPATCH = "dispatch"
"""The kind of a function whose calls the server sends to the function's ``dispatch_url``."""


@dataclass(frozen=True, slots=True)
class SubmittedFile:
    """A file of the request: the id of a file that the server has, or the name and bytes of a new one."""

    id: str = ""
    name: str = ""
    mime: str = ""
    data: bytes = field(default=b"", repr=False)


def name_files(files: Iterable[SubmittedFile]) -> str:
    """Return the text of a message that has files and no text: their names, because a prompt must not be empty."""
    return ", ".join(file.name or file.id for file in files)


@dataclass(frozen=True, slots=True)
class DialectRequest:
    """A parsed request of a dialect.

    ``model`` is the model name as the client wrote it. ``groups`` are the tool groups that the fields of the request
    enable for a model without the prefix ``agent/``. With ``only_groups``, the turn gets no server tools but those of
    ``groups``, whatever the model name and the number of rounds allow.

    ``session`` is the id that the client names; if it is empty, the session is not listed. With ``continuable``, the
    session is stored even if it is not named, because a later request can continue it by another id. With ``streams``,
    a reader follows the answer and can answer approval questions. ``own_messages`` is the conversation without the
    calls of server tools that the client has repeated, for an existing session, which already holds these calls.
    ``route`` is the dialect's name in the metrics.
    """

    model: str
    request: TurnRequest
    groups: tuple[str, ...] = ()
    session: str = ""
    files: tuple[SubmittedFile, ...] = ()
    streams: bool = False
    continuable: bool = False
    route: str = ""
    own_messages: tuple[Message, ...] = ()
    only_groups: bool = False

    @property
    def name(self) -> str:
        """The name of the engine or model, without the prefix ``agent/``; empty for the server's default engine."""
        name = self.model.removeprefix(AGENT)
        return "" if name == DEFAULT else name

    @property
    def server_tools(self) -> tuple[str, ...] | None:
        """The names and groups of the server tools that the turn may use, as in ``TurnRequest.tools``; None means all
        of them."""
        if self.only_groups:
            return (*self.groups, *(spec.name for spec in self.request.functions if spec.kind == DISPATCH))
        if self.model.startswith(AGENT):
            return None
        elsewhere = ("mcp", "functions", "dispatch") if self.request.max_tool_rounds else ()
        return (*self.groups, *elsewhere)

    def with_dispatch(self) -> DialectRequest:
        """Return the request with its functions dispatched by the server through their ``dispatch_url``. Applies
        only where ``max_tool_rounds`` is above 0; otherwise the client runs the calls and the request is returned
        unchanged."""
        if not self.request.max_tool_rounds:
            return self
        functions = tuple(replace(spec, kind=DISPATCH, where="server") for spec in self.request.functions)
        return replace(self, request=replace(self.request, functions=functions))
