"""Parses the messages in a request. They have OpenAI's format, or the format in which this API returns the items of a
session."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from agent_kernel.core.messages import Media, Message, Part, Text, ToolCall, is_visible_media
from jupyter_ext.api.dialects.openai_content import (
    CALL_ID,
    MAX_CALLS,
    RequestSize,
    check_calls,
    check_depth,
    check_length,
    make_message,
    make_tool_call,
)

MAX_PARTS = 100
"""Maximum number of parts in one message."""


def from_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("data must be base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"data is not valid base64: {error}") from error


Base64 = Annotated[bytes, BeforeValidator(from_base64)]


class CarriedBody(BaseModel):
    """Base class of the parts of a message. Unknown keys (refusal, audio, annotations) are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class ImageUrl(CarriedBody):
    url: Annotated[str, Field(pattern=r"^data:[^;,]{1,100};base64,")]


class PartBody(CarriedBody):
    """A part of a message. A part of the type ``media`` has its bytes in ``data``, or the ``hash`` and ``size`` of
    media that the session has."""

    type: Literal["text", "media", "image_url"]
    text: str = ""
    mime: Annotated[str, Field(max_length=200)] = ""
    data: Base64 | None = None
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    size: Annotated[int, Field(ge=0)] = 0
    image_url: ImageUrl | None = None

    @model_validator(mode="after")
    def complete(self) -> PartBody:
        if self.type == "media" and not (self.mime and (self.data is not None or self.hash)):
            raise ValueError("a medium must have a mime type, and data or the hash of a medium of the session")
        if self.type == "image_url" and self.image_url is None:
            raise ValueError("an image_url must have a data URL (data:image/png;base64,...)")
        if self.type != "text" and not is_visible_media(self._mime):
            raise ValueError("models do not accept this medium; send images (PNG, JPEG, GIF, WebP) or videos")
        return self

    @property
    def _mime(self) -> str:
        return self.image_url.url[len("data:") :].partition(";")[0] if self.image_url else self.mime

    def part(self) -> Part:
        """Return the part. Raises ValueError for a URL whose data is not valid base64."""
        if self.type == "text":
            return Text(self.text)
        data = from_base64(self.image_url.url.partition(",")[2]) if self.image_url else self.data
        return Media(self.mime, self.hash or "", self.size) if data is None else Media.of(self._mime, data)


class FunctionBody(CarriedBody):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: dict[str, Any] | str = ""
    _arguments = field_validator("arguments")(check_depth)


class CallBody(CarriedBody):
    id: Annotated[str, Field(min_length=1, max_length=CALL_ID)]
    function: FunctionBody

    def call(self) -> ToolCall:
        return make_tool_call(self.id, self.function.name, self.function.arguments)


class MessageBody(CarriedBody):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[PartBody], Field(max_length=MAX_PARTS)] | str | None = None
    tool_calls: Annotated[list[CallBody], Field(max_length=MAX_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(max_length=CALL_ID)] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None

    @model_validator(mode="after")
    def consistent(self) -> MessageBody:
        check_calls(self.role, self.tool_calls, self.tool_call_id)
        return self

    def message(self) -> Message:
        """Return the message; reasoning and status are ignored."""
        content = self.content or []
        parts = [Text(content)] if isinstance(content, str) else [part.part() for part in content]
        calls = [call.call() for call in self.tool_calls or ()]
        return make_message(self.role, parts, calls, self.tool_call_id, self.name)


def read_messages(bodies: list[MessageBody], most_media: int, other_chars: int = 0) -> tuple[Message, ...]:
    """Return the messages. ``other_chars`` is the length of the other texts of the request. Raises RequestTooLarge for
    too much text, and ValueError for more than ``most_media`` bytes of media."""
    messages = tuple(body.message() for body in bodies)
    load = RequestSize.of(messages, ())
    check_length(other_chars + load.chars, "messages" if messages else "prompt")
    if load.size > most_media:
        raise ValueError(f"a turn can have at most {most_media >> 20} MiB of media together")
    return messages
