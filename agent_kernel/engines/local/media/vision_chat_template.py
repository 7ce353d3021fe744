"""Renders the chat template of a vision model. It tests which form of messages the template accepts, and in which
messages the template writes pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import ChatMessage

WORD = "kilimanjaro"
"""A word that occurs in no template, for tests of a template."""
RESULT = "What the call has shown:"


class PictureTemplate:
    """The chat template of a vision model. ``placeholder`` is the text that the template writes for a picture.
    ``spelled`` contains all texts that the model's processor reads as a placeholder. If one of them occurs in a
    message's text, a space is inserted into it, so that it does not count as a picture."""

    def __init__(self, processor: Any, placeholder: str, spelled: Sequence[str]) -> None:
        self._processor = processor
        self._placeholder = placeholder
        self._spelled = spelled
        self._takes_text = self._takes_plain_text()
        if not self._takes_text and not self._shows([{"type": "text", "text": WORD}]):
            raise EngineError(
                "This model's chat template leaves out the text of messages.", hint="Choose an instruction-tuned model."
            )

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Render a prompt. If the template omits pictures in tool results, they are moved to a separate user message
        after the result."""
        chat = [{**message, "content": self._content(message.get("content") or "")} for message in messages]
        pictures = sum(part["type"] == "image" for message in chat for part in _parts(message))
        text = self._apply(chat, tools)
        if text.count(self._placeholder) != pictures:
            text = self._apply(_move_pictures(chat), tools)
        return text

    def _content(self, content: Any) -> Any:
        if isinstance(content, str):
            text = self._escape(content)
            return text if self._takes_text else [{"type": "text", "text": text}]
        return [part | {"text": self._escape(part["text"])} if part["type"] == "text" else part for part in content]

    def _escape(self, text: str) -> str:
        for token in self._spelled:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _takes_plain_text(self) -> bool:
        try:
            return self._shows(WORD)
        except EngineError:  # the template may accept a list of parts instead
            return False

    def _shows(self, content: Any) -> bool:
        """Return whether the template shows the text of a user message whose ``content`` has this form: the rendered
        prompt must contain WORD. Raises EngineError if the template fails."""
        try:
            return WORD in self._apply([{"role": "user", "content": content}])
        except Exception as error:  # a template may raise anything
            raise EngineError(f"This model's chat template fails: {error}") from error

    def _apply(self, chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        schemas = [dict(tool) for tool in tools] or None
        template = self._processor.apply_chat_template
        return str(template(list(chat), tools=schemas, tokenize=False, add_generation_prompt=True))


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _move_pictures(chat: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the chat with the pictures of all other messages moved to user messages that follow them."""
    moved: list[Mapping[str, Any]] = []
    for message in chat:
        images = [part for part in _parts(message) if part["type"] == "image"]
        if message["role"] == "user" or not images:
            moved.append(message)
            continue
        text = "".join(str(part.get("text", "")) for part in _parts(message))
        moved.append({**message, "content": text})
        moved.append({"role": "user", "content": [{"type": "text", "text": RESULT}, *images]})
    return moved
