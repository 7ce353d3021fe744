"""Builds the result of one turn from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.client.file import File
from agent_kernel.client.http import ServerConnection
from agent_kernel.client.output_schema import OutputType
from agent_kernel.core.errors import AgentKernelError, FileNotFound, from_json
from agent_kernel.core.events import (
    CallFinished,
    CallReturned,
    CallStarted,
    Event,
    FileProduced,
    Notice,
    ReasoningDelta,
    StateLost,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.messages import ToolCall, Usage


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a turn and its result. ``status`` is empty if the call has no result. ``files`` are the ids of the
    files that it produced."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    status: str = ""
    text: str = ""
    seconds: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a turn.

    ``text`` is the final answer, ``value`` the answer as a value of the requested type. ``state`` is committed,
    cancelled, failed or interrupted, and ``reason`` says why. ``finish`` is why the model stopped: stop, length or
    calls. ``returned`` are calls without a result, which this program answers in its next turn. ``notices`` are lines
    for a person to read.
    """

    turn: str
    session: str
    state: str
    text: str
    value: Any = None
    reasoning: str = ""
    reason: str = ""
    finish: str = ""
    model: str = ""
    rounds: int = 0
    usage: Usage = field(default_factory=Usage)
    calls: tuple[Call, ...] = ()
    returned: tuple[ToolCall, ...] = ()
    files: tuple[File, ...] = ()
    notices: tuple[str, ...] = ()
    error: AgentKernelError | None = None

    def __str__(self) -> str:
        return self.text

    def file(self, name: str) -> File:
        """Return the last file of that name. Raises FileNotFound, FileNotProduced."""
        match = next((file for file in reversed(self.files) if file.name == name), None)
        if match is None:
            raise FileNotFound(f"This turn produced no file named {name[:80]!r}.", hint="result.files lists its files.")
        if match.error is not None:
            raise match.error
        return match


class ResultBuilder:
    """Builds a result from the events of a turn."""

    def __init__(self, connection: ServerConnection, shape: OutputType | None = None) -> None:
        self._connection = connection
        self._shape = shape
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._called = False
        self._calls: dict[str, Call] = {}
        self._returned: list[ToolCall] = []
        self._files: dict[str, File] = {}
        self._notices: list[str] = []
        self._model = ""
        self._last: Event | None = None

    def add(self, event: Event) -> None:
        body = event.body
        self._last = event
        if isinstance(body, TextDelta):
            if self._called:  # text before a call is not part of the closing answer
                self._text, self._called = [], False
            self._text.append(body.text)
        elif isinstance(body, ReasoningDelta):
            self._reasoning.append(body.text)
        elif isinstance(body, CallStarted):
            self._called = True
            self._calls[body.call] = Call(body.call, body.name, body.arguments)
        elif isinstance(body, CallFinished):
            self._finish_call(body)
        elif isinstance(body, CallReturned):
            self._returned.append(ToolCall(body.call, body.name, dict(body.arguments)))
        elif isinstance(body, FileProduced):
            file = File.from_json(body.file, event.session, self._connection)
            self._files[file.id or f"{body.call} {file.name}"] = file
        elif isinstance(body, TurnStarted):
            self._model = body.model
        elif isinstance(body, Notice):
            self._notices.append(body.line)
        elif isinstance(body, StateLost):
            self._notices.append(body.reason)

    @property
    def finished(self) -> TurnFinished | None:
        body = self._last.body if self._last else None
        return body if isinstance(body, TurnFinished) else None

    def result(self) -> Result:
        """Return the result of a turn that has ended. Raises OutputInvalid if a committed answer is not of the
        requested type."""
        last, end = self._last, self.finished
        assert last is not None
        assert end is not None
        text = "".join(self._text)
        whole = self._shape is not None and end.state == "committed" and not self._returned
        return Result(
            last.turn,
            last.session,
            end.state,
            text,
            self._shape.value(text) if whole and self._shape else None,
            "".join(self._reasoning),
            end.reason,
            end.finish,
            self._model,
            end.rounds,
            Usage.from_json(end.usage),
            tuple(self._calls.values()),
            tuple(self._returned),
            tuple(self._files.values()),
            tuple(self._notices),
            from_json(end.error) if end.error else None,
        )

    def _finish_call(self, body: CallFinished) -> None:
        began = self._calls.get(body.call)
        arguments = began.arguments if began else {}
        self._calls[body.call] = Call(
            body.call, body.name, arguments, body.status, body.text, body.seconds, body.details, tuple(body.files)
        )
