"""Parses the recorded turns of a document: their prompts, the replies of the model, and the results of tools. The
module does no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_kernel.core.messages import Media, Message, Part, Text, ToolCall
from agent_kernel.core.session import Turn
from agent_kernel.core.session_tree import Transcript


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One turn of a recorded conversation. ``earlier`` are the messages of the turns before it, ``messages`` are its
    own, both in order. ``number`` counts the answered turns from 1."""

    turn: Turn
    number: int
    earlier: tuple[Message, ...]
    messages: tuple[Message, ...]

    @property
    def prompt(self) -> str:
        return next((message.text for message in self._prompts), "")

    @property
    def media(self) -> tuple[Media, ...]:
        return next((message.media for message in self._prompts), ())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(message.text for message in self.messages if message.role == "user" and message.hidden)

    @property
    def replies(self) -> tuple[Message, ...]:
        """The model's replies in order, one for each model call."""
        return tuple(message for message in self.messages if message.role == "assistant")

    @property
    def answer(self) -> str:
        return self.replies[-1].text if self.replies else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for reply in self.replies for call in reply.calls)

    @property
    def results(self) -> dict[str, Message]:
        """The tool results by the id of their call."""
        return {message.call_id or "": message for message in self.messages if message.role == "tool"}

    @property
    def _prompts(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.role == "user" and not message.hidden)


def parse_turns(document: Transcript) -> list[RecordedTurn]:
    """Return the answered turns of the document's current branch, in order."""
    turns, items = document.select_branch()
    answered: list[RecordedTurn] = []
    earlier: list[Message] = []
    for turn in turns:
        own = [_with_media(item.message, document) for item in items if item.turn == turn.id]
        if turn.state == "committed":
            answered.append(RecordedTurn(turn, len(answered) + 1, tuple(earlier), tuple(own)))
        earlier += own
    return answered


def same_call(first: ToolCall, second: ToolCall) -> bool:
    """Return whether two calls have the same tool and arguments. White space at the ends of lines is ignored."""
    return first.name == second.name and _plain(first.arguments) == _plain(second.arguments)


def _plain(value: object) -> object:
    if isinstance(value, str):
        return "\n".join(line.rstrip() for line in value.strip().splitlines())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {name: _plain(one) for name, one in dict(value).items()}  # type: ignore[call-overload]  # a mapping
    return value


def _with_media(message: Message, document: Transcript) -> Message:
    """Return the message with the bytes of its media. A note replaces each medium whose bytes the document does not
    contain."""
    if not message.media:
        return message

    def fill(part: Part) -> Part:
        if not isinstance(part, Media):
            return part
        data = document.blobs.get(part.hash)
        return Text(f"[{part.mime}, which was not included]") if data is None else replace(part, data=data)

    return replace(message, parts=tuple(fill(part) for part in message.parts))
