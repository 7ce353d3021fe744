"""Parses the messages of ``chat/completions`` requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, field_validator, model_validator

from agent_kernel.core.messages import Message, Part, Text, ToolCall
from jupyter_ext.api.dialects import openai_content
from jupyter_ext.api.dialects.openai_content import CALL_ID, MAX_CALLS, MAX_PARTS, Links, check_depth, make_tool_call
from jupyter_ext.api.dialects.openai_functions import Words
from jupyter_ext.api.dialects.request_extensions import text_or_list
from jupyter_ext.turns.dialect_request import SubmittedFile, name_files


class TextPart(Words):
    type: Literal["text"]
    text: str


class RefusalPart(Words):
    type: Literal["refusal"]
    refusal: str


def _data_or_link(url: str) -> str:
    if not (openai_content.is_link(url) or url[:5].lower() == "data:"):
        raise ValueError("a url must be a data URL (data:image/png;base64,...) or an http URL")
    return url


class Url(Words):
    """The URL of an image or a video: a data URL or a link. ``detail`` is ignored."""

    url: Annotated[str, AfterValidator(_data_or_link)]


class ImagePart(Words):
    type: Literal["image_url"]
    image_url: Url

    @property
    def url(self) -> str:
        return self.image_url.url


class VideoPart(Words):
    """A video part, in the format of vLLM and mistral.rs."""

    type: Literal["video_url"]
    video_url: Url

    @property
    def url(self) -> str:
        return self.video_url.url


class AudioPart(Words):
    type: Literal["input_audio", "audio_url"]

    @model_validator(mode="after")
    def refuse(self) -> AudioPart:
        raise ValueError(openai_content.NO_AUDIO)


class FileFields(Words):
    file_id: Annotated[str, Field(max_length=512)] | None = None
    filename: Annotated[str, Field(max_length=1_000)] | None = None
    file_data: str | None = None
    file_url: Any = None
    _given: SubmittedFile = PrivateAttr()

    @model_validator(mode="after")
    def complete(self) -> FileFields:
        if self.file_url is not None:
            raise ValueError(
                "a file must have a file_id, or a filename and file_data; a file_url is not supported here"
            )
        self._given = openai_content.make_submitted_file(self.file_id, self.filename, self.file_data)
        return self


class FilePart(Words):
    type: Literal["file"]
    file: FileFields

    @property
    def submitted_file(self) -> SubmittedFile:
        return self.file._given


ContentPart = Annotated[
    TextPart | RefusalPart | ImagePart | VideoPart | AudioPart | FilePart, Field(discriminator="type")
]


Content = Annotated[
    Annotated[str, Tag("[text]")] | Annotated[list[ContentPart], Field(max_length=MAX_PARTS), Tag("[list]")],
    Discriminator(text_or_list),
]


class CalledFunction(Words):
    """The function of a tool call, with its arguments.

    ``arguments`` can also be an object instead of JSON text, because sessions of mistral.rs contain objects.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: str | dict[str, Any] | None = None
    _arguments = field_validator("arguments")(check_depth)


class ChatCall(Words):
    id: Annotated[str, Field(min_length=1, max_length=CALL_ID)]
    type: Literal["function"] | None = None
    function: CalledFunction

    @property
    def call(self) -> ToolCall:
        return make_tool_call(self.id, self.function.name, self.function.arguments or "")


class ChatMessage(Words):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Annotated[str, Field(max_length=200)] | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ChatCall], Field(max_length=MAX_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID)] | None = None

    @model_validator(mode="after")
    def consistent(self) -> ChatMessage:
        openai_content.check_calls(self.role, self.tool_calls, self.tool_call_id)
        if self.content is None and self.role in ("system", "developer", "user", "tool"):
            raise ValueError(f"a {self.role} message must have content")
        if self.role != "user" and any(not isinstance(part, TextPart | RefusalPart) for part in self.parts):
            raise ValueError(f"media and files are allowed only in messages of the user, not of {self.role}")
        return self

    @property
    def parts(self) -> Sequence[ContentPart]:
        return self.content if isinstance(self.content, list) else ()

    @property
    def links(self) -> list[str]:
        """Return the URLs of media that have to be fetched."""
        media = [part.url for part in self.parts if isinstance(part, ImagePart | VideoPart)]
        return [url for url in media if openai_content.is_link(url)]

    @property
    def files(self) -> list[SubmittedFile]:
        return [part.submitted_file for part in self.parts if isinstance(part, FilePart)]

    def message(self, links: Links) -> Message:
        """Return the message. Raises ValueError for media that cannot be used."""
        texts = [Text(self.content)] if isinstance(self.content, str) else []
        parts = [*texts, *[_part(part, links) for part in self.parts if not isinstance(part, FilePart)]]
        if not parts and (text := self.refusal or name_files(self.files)):
            parts = [Text(text)]
        calls = [call.call for call in self.tool_calls or ()]
        return openai_content.make_message(self.role, parts, calls, self.tool_call_id, self.name)


def _part(part: ContentPart, links: Links) -> Part:
    match part:
        case TextPart(text=text):
            return Text(text)
        case RefusalPart(refusal=text):
            return Text(text)
        case ImagePart() | VideoPart():
            return openai_content.medium(part.url, links)
    raise ValueError(openai_content.NO_AUDIO)


@dataclass(frozen=True, slots=True)
class ChatConversation:
    messages: tuple[Message, ...]
    files: tuple[SubmittedFile, ...]


def conversation(
    bodies: Sequence[ChatMessage], links: Links, *, alone: bool, continues: bool = False
) -> ChatConversation:
    """Convert the messages. ``alone``: tool results are accepted without the calls that they answer. ``continues``: the
    last message, a text of the assistant, is the beginning of the answer. If all messages are instructions, the last
    one becomes the prompt. Raises ValueError."""
    messages = [body.message(links) for body in bodies]
    files = tuple(file for body in bodies for file in body.files)
    if messages and all(message.role == "system" for message in messages):
        messages[-1] = Message("user", messages[-1].parts)
    openai_content.within_limits(messages, files)
    named_messages = openai_content.name_results(messages, alone=alone, continues=continues)
    return ChatConversation(tuple(named_messages), files)
