"""What a client asks for in one turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import Media, Message
from agent_kernel.core.protocols import OutputFormat, Sampling, ToolSpec, Variable
from agent_kernel.core.settings import Permission

History: TypeAlias = Literal["auto", "append", "replay"]
"""How the messages of a request relate to the stored ones: all are new, or they repeat the conversation."""


@dataclass(frozen=True, slots=True)
class Note:
    """Hidden context of one turn: the model reads it before the prompt."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell of a notebook: ``text`` is what a model reads of one that is no turn of the session."""

    id: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """``epoch`` names one life of the kernel it comes from; ``answers`` are the kinds of calls it can have a person
    answer for (``*`` = all). ``permission`` can only make the policy stricter. ``tool_choice`` binds the first round
    only: a call that must be made is made once. ``required`` is met by the functions that the client declares, where it
    declares any: until one was called the model is offered no others. ``model`` names the engine where a server has
    several; an Agent that was given its engine keeps it.

    ``messages`` is the conversation that the client carries; the prompt comes behind it, or is its end (then ``prompt``
    is empty). ``history`` says what it is: ``append``, all of it is new; ``replay``, the conversation as the client
    knows it, reconciled with what is stored; ``auto``, replay if it has an answer before what it adds. System messages
    at its beginning are the instructions of this turn, and not stored. ``history_limit``: how many earlier items the
    model sees at most (None: the session's own limit). ``after`` is the turn of the session behind which this one
    stands, on whichever branch that is; empty: at the end of the current branch. All of ``messages`` is new then.

    ``tools`` are the names or groups of tools wanted (None: all that the server has); a request only narrows them.
    ``client_tools`` are those that the client can run itself. ``inputs`` are ids of files that the model is told of and
    code finds in its work directory, ``outputs`` are files asked for, ``given`` copies of variables for the sandbox,
    ``skills`` (``id`` or ``id@version``) are mounted for the turn. ``web`` are web_search_options, None: no web.
    ``functions`` are tools that the client declares: those whose ``where`` is ``caller`` end the turn when they are
    called, and the client's next turn brings their results; ``dispatch_url`` runs the calls of the others.
    ``remembered`` False: what was allowed for the session does not count in this turn; ``denied`` are kinds or names of
    tools that do not run in it.

    ``page`` is what of the notebook the model sees in place of the conversation: ``above`` (the cells above ``cell``,
    in the order of the page), ``none``, or cells by number or id as ``3, 5-8``; empty: the conversation. ``ran`` are
    ids of cells in the order in which they ran, for cells that are not saved yet.
    """

    prompt: str = ""
    media: tuple[Media, ...] = ()
    notes: tuple[Note, ...] = ()
    where: str = "sandbox"
    cell: str = ""
    epoch: str = ""
    permission: Permission = "auto"
    answers: frozenset[str] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)
    max_tool_rounds: int | None = None
    tool_choice: str = "auto"
    parallel_calls: bool = True
    output: OutputFormat | None = None
    model: str = ""
    messages: tuple[Message, ...] = ()
    history: History = "auto"
    history_limit: int | None = None
    after: str = ""
    tools: tuple[str, ...] | None = None
    client_tools: frozenset[str] = frozenset()
    inputs: tuple[str, ...] = ()
    outputs: tuple[RequestedFile, ...] = ()
    given: tuple[Variable, ...] = ()
    skills: tuple[str, ...] = ()
    web: Mapping[str, Any] | None = None
    functions: tuple[ToolSpec, ...] = ()
    dispatch_url: str = ""
    remembered: bool = True
    denied: frozenset[str] = frozenset()
    page: str = ""
    ran: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The text of what the user says last."""
        return self.prompt or next((said.text for said in reversed(self.messages) if said.role == "user"), "")
