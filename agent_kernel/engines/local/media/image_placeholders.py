"""The chat template of a model that sees: what shape of messages it takes, and where it lets pictures stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import ChatMessage

WORD = "kilimanjaro"
"""A text that no template writes by itself."""
RESULT = "What the call has shown:"


class PictureTemplate:
    """``placeholder`` is what the template writes for a picture; ``spelled`` are texts that would be read as its place,
    and are written with a space in them where they are text."""

    def __init__(self, processor: Any, placeholder: str, spelled: Sequence[str]) -> None:
        self._processor = processor
        self._placeholder = placeholder
        self._spelled = spelled
        self._takes_text = self._shows(WORD)
        if not self._takes_text and not self._shows([{"type": "text", "text": WORD}]):
            raise EngineError("This model's chat template shows no text.", hint="Choose an instruction-tuned model.")

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """With the pictures of results in a message of their own where the template leaves them out."""
        chat = [{**message, "content": self._content(message.get("content") or "")} for message in messages]
        pictures = sum(part["type"] == "image" for message in chat for part in _parts(message))
        text = self._applied(chat, tools)
        if text.count(self._placeholder) != pictures:
            text = self._applied(_moved(chat), tools)
        return text

    def _content(self, content: Any) -> Any:
        if isinstance(content, str):
            text = self._told(content)
            return text if self._takes_text else [{"type": "text", "text": text}]
        return [part | {"text": self._told(part["text"])} if part["type"] == "text" else part for part in content]

    def _told(self, text: str) -> str:
        for token in self._spelled:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _shows(self, content: Any) -> bool:
        try:
            return WORD in self._applied([{"role": "user", "content": content}])
        except Exception:  # noqa: BLE001  templates are programs of strangers: they raise what they like
            return False

    def _applied(self, chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        given: dict[str, Any] = {"tools": [dict(tool) for tool in tools]} if tools else {}
        template = self._processor.apply_chat_template
        return str(template(list(chat), tokenize=False, add_generation_prompt=True, **given))


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _moved(chat: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Pictures that are no person's follow as a message of the person."""
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
