"""Defines the request for one turn, as a client sends it and as an Agent receives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import Media, Message
from agent_kernel.core.protocols import OutputFormat, Sampling, ToolSpec, Variable
from agent_kernel.core.settings import Effort, Permission

History: TypeAlias = Literal["auto", "append", "replay"]
"""How the messages of a request relate to the stored ones: ``append`` (all are new), ``replay`` (they repeat the
conversation), or ``auto`` (decided by the messages)."""


@dataclass(frozen=True, slots=True)
class Note:
    """Hidden context of one turn; the model reads it before the prompt."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell of a notebook. The model reads ``text`` if the cell does not belong to a turn of the session."""

    id: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The request of a client for one turn.

    Origin: ``cell`` is the notebook cell, ``epoch`` identifies one run of the kernel, and ``answers`` are the kinds of
    calls for which the client can ask a person (``*`` = all). ``model`` selects an engine if the server has several; an
    Agent that was constructed with an engine ignores it. ``effort`` determines how many programs are compared before
    one is used (empty: the server's setting).

    Conversation: ``messages`` are those that the client sends. ``prompt`` follows them, or is empty if ``messages``
    ends with the prompt. ``history`` says how ``messages`` relate to the stored ones. ``append``: all of them are new.
    ``replay``: they are the conversation as the client knows it, and are merged with the stored one. ``auto``: replay
    if an answer precedes the messages that the request adds, otherwise append. System messages at the beginning are
    instructions for this turn and are not stored. ``history_limit`` is the maximum number of earlier items that the
    model sees (None: the limit of the session). ``after`` is the id of the turn, on any branch, that this one follows;
    if it is empty, this turn follows the end of the current branch. With ``after``, all of ``messages`` is new.

    ``instructions`` are those that the user gives for this turn. The server adds those of its configuration, of the
    folder and of the conversation. They are added to the server's own instructions, not to those at the beginning of
    ``messages``.

    Tools: ``tools`` are names or groups of tools (None: all that the server has); a request can only narrow the set.
    ``tool_choice`` applies to the first round only. If it is ``required`` and the client declares functions, the model
    is offered no other tools until it has called one of them. ``client_tools`` are tools that the client can run
    itself. ``functions`` are tools that the client declares: a call of a function whose ``where`` is ``caller`` ends
    the turn, and the client's next turn contains the result. The server at ``dispatch_url`` runs the calls of the
    other functions. ``skills`` (``id`` or ``id@version``) are mounted for the turn. ``web`` holds OpenAI's
    web_search_options; None disables the web tools.

    Files and variables: ``inputs`` are ids of files that are described to the model and copied to the work directory,
    ``outputs`` are files that the turn should produce, and ``given`` are copies of variables for the sandbox.

    Permissions: ``permission`` can only make the policy stricter. If ``remembered`` is False, earlier decisions for the
    session are ignored. ``denied`` are kinds or names of tools that do not run in this turn.

    Notebook: ``page`` selects the cells that the model sees in place of the conversation: ``above`` (the cells above
    ``cell``, in page order), ``none``, or cells by number or id as ``3, 5-8``; empty selects the conversation. ``ran``
    are ids of cells in execution order, for cells that are not saved yet."""

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
    effort: Effort | Literal[""] = ""
    messages: tuple[Message, ...] = ()
    instructions: str = ""
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
    def last_user_text(self) -> str:
        """The text of the last user message."""
        return self.prompt or next((message.text for message in reversed(self.messages) if message.role == "user"), "")
