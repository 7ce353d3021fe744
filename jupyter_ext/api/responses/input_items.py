"""Parses the input items of a request for a response, as a client sends them. The module has no side effects; an
invalid item raises ValueError."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, PrivateAttr, Tag, TypeAdapter, model_validator

from agent_kernel.core.messages import Media, ToolCall
from jupyter_ext.api.dialects import openai_content
from jupyter_ext.api.dialects.openai_content import CALL_ID, MAX_PARTS
from jupyter_ext.api.dialects.openai_functions import Words
from jupyter_ext.turns.dialect_request import SubmittedFile

Body: TypeAlias = dict[str, Any]
Id = Annotated[str, Field(max_length=512)]
MEDIUM = "medium"
"""The key in a stored image part under which the part refers to the image's bytes. The session stores these bytes."""


@dataclass(frozen=True, slots=True)
class FetchedInput:
    """The content that was fetched for a request: pictures by URL or file id, and files by URL."""

    pictures: Mapping[str, Media] = field(default_factory=dict)
    files: Mapping[str, SubmittedFile] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------------- parts


class InputText(Words):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class InputRefusal(Words):
    type: Literal["refusal"]
    refusal: str


class InputImage(Words):
    """An image part. ``detail`` is ignored."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: Id | None = None
    detail: Annotated[str, Field(max_length=20)] | None = None
    _medium: Media | None = PrivateAttr(None)

    @model_validator(mode="after")
    def complete(self) -> InputImage:
        if bool(self.image_url) == bool(self.file_id):
            raise ValueError("an image must have an image_url or a file_id")
        if self.image_url and not (openai_content.is_link(self.image_url) or self.image_url[:5].lower() == "data:"):
            raise ValueError("an image_url must be a data URL (data:image/png;base64,...) or an http URL")
        return self

    @property
    def link(self) -> str:
        return self.image_url if self.image_url and openai_content.is_link(self.image_url) else ""

    def medium(self, fetched: FetchedInput) -> Media:
        """Return the picture. A data URL is decoded only once."""
        if self.file_id:
            return fetched.pictures[self.file_id]
        if self.link:
            return openai_content.medium(self.link, fetched.pictures)
        if self._medium is None:
            self._medium = openai_content.medium(self.image_url or "")
        return self._medium

    def to_store(self, medium: Media | None) -> Body:
        body: Body = {"type": self.type, "detail": self.detail or "auto", "file_id": self.file_id}
        if self.link:
            return {**body, "image_url": self.link}
        return body if medium is None else {**body, MEDIUM: {"hash": medium.hash, "mime": medium.mime}}


class InputFile(Words):
    type: Literal["input_file"]
    file_id: Id | None = None
    file_data: str | None = None
    file_url: Annotated[str, Field(max_length=8_192)] | None = None
    filename: Annotated[str, Field(max_length=1_000)] | None = None
    _given: SubmittedFile | None = PrivateAttr(None)

    @model_validator(mode="after")
    def complete(self) -> InputFile:
        if sum(map(bool, (self.file_id, self.file_data, self.file_url))) != 1:
            raise ValueError("a file must have a file_id, file_data or a file_url")
        if self.file_url and not openai_content.is_link(self.file_url):
            raise ValueError("a file_url must be an http URL")
        if not self.file_url:
            self._given = openai_content.make_submitted_file(self.file_id, self.filename or "file", self.file_data)
        return self

    def to_submitted(self, fetched: FetchedInput) -> SubmittedFile:
        if self._given is not None:
            return self._given
        return fetched.files[self.file_url or ""]

    def to_store(self) -> Body:
        """Return the part as it is stored. A file that came with the request has no id before it is stored."""
        return {"type": self.type, "file_id": self.file_id, "filename": self.filename, "file_url": self.file_url}


class InputAudio(Words):
    type: Literal["input_audio"]

    @model_validator(mode="after")
    def refuse(self) -> InputAudio:
        raise ValueError(openai_content.NO_AUDIO)


InputPart = Annotated[InputText | InputRefusal | InputImage | InputFile | InputAudio, Field(discriminator="type")]
Said: TypeAlias = str | Annotated[list[InputPart], Field(max_length=MAX_PARTS)]


# ---------------------------------------------------------------------------------------------------- items


class MessageItem(Words):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Said
    id: Id | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    @model_validator(mode="after")
    def consistent(self) -> MessageItem:
        if self.role != "user" and any(isinstance(part, InputImage | InputFile) for part in parts(self.content)):
            raise ValueError(f"images and files are allowed only in messages of the user, not of {self.role}")
        return self


class FunctionCallItem(Words):
    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID)]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    namespace: Annotated[str, Field(max_length=200)] | None = None
    arguments: str = ""
    id: Id | None = None

    @property
    def call(self) -> ToolCall:
        name = f"{self.namespace}.{self.name}" if self.namespace else self.name
        return openai_content.make_tool_call(self.call_id, name, self.arguments)


class FunctionResultItem(Words):
    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID)]
    output: Said
    id: Id | None = None


class ReasoningItem(Words):
    """A reasoning item. It is ignored: the session has the reasoning, and another model cannot use it."""

    type: Literal["reasoning"]
    id: Id | None = None


class ReferenceItem(Words):
    type: Literal["item_reference"] | None = None
    id: Annotated[str, Field(min_length=1, max_length=512)]


class ShellAction(Words):
    commands: Annotated[list[str], Field(max_length=1_000)]


class ShellCallItem(Words):
    type: Literal["shell_call"]
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID)]
    action: ShellAction
    id: Id | None = None


class ShellPrinted(Words):
    stdout: str = ""
    stderr: str = ""
    outcome: Annotated[dict[str, Any], Field(default_factory=dict)]


class ShellResultItem(Words):
    type: Literal["shell_call_output"]
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID)]
    output: Annotated[list[ShellPrinted], Field(max_length=1_000)]
    id: Id | None = None

    @property
    def text(self) -> str:
        return "\n".join(part for one in self.output for part in (one.stdout, one.stderr) if part) or "(no output)"


class CodePrinted(Words):
    type: Annotated[str, Field(max_length=40)] = "logs"
    logs: str = ""


class CodeItem(Words):
    type: Literal["code_interpreter_call"]
    id: Id = ""
    code: str | None = None
    outputs: Annotated[list[CodePrinted], Field(max_length=1_000)] | None = None

    @property
    def text(self) -> str:
        return "\n".join(printed.logs for printed in self.outputs or () if printed.logs) or "(no output)"


class WebItem(Words):
    """A web search item. It is ignored, because the session has the results of the search."""

    type: Literal["web_search_call"]
    id: Id | None = None


def _kind(value: Any) -> str | None:
    """Return the type of an item. A message may leave out its type, and so may a reference to an item."""
    if isinstance(value, Words):
        return str(getattr(value, "type", None) or "item_reference")
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if kind is None:
        return "message" if "role" in value else "item_reference"
    return kind if isinstance(kind, str) else None


AnyItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionResultItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ReferenceItem, Tag("item_reference")]
    | Annotated[ShellCallItem, Tag("shell_call")]
    | Annotated[ShellResultItem, Tag("shell_call_output")]
    | Annotated[CodeItem, Tag("code_interpreter_call")]
    | Annotated[WebItem, Tag("web_search_call")],
    Discriminator(
        _kind,
        custom_error_type="item",
        custom_error_message="this server accepts items of the types code_interpreter_call, function_call, "
        "function_call_output, item_reference, message, reasoning, shell_call, shell_call_output, web_search_call",
    ),
]
ITEMS: TypeAdapter[list[AnyItem]] = TypeAdapter(list[AnyItem])


def parts_of(items: Iterable[AnyItem]) -> Iterator[InputImage | InputFile]:
    """Yield the images and files that may have to be fetched."""
    for item in items:
        content = item.content if isinstance(item, MessageItem) else None
        content = item.output if isinstance(item, FunctionResultItem) else content
        yield from (part for part in parts(content) if isinstance(part, InputImage | InputFile))


def characters(item: AnyItem) -> int:
    """Return the number of characters of an item's text, including the arguments of calls."""
    match item:
        case MessageItem():
            return _length(item.content)
        case FunctionCallItem():
            return len(item.arguments)
        case FunctionResultItem():
            return _length(item.output)
        case ShellCallItem():
            return sum(map(len, item.action.commands))
        case ShellResultItem():
            return sum(len(output.stdout) + len(output.stderr) for output in item.output)
        case CodeItem():
            return len(item.code or "") + sum(len(printed.logs) for printed in item.outputs or ())
    return 0


def _length(content: Said) -> int:
    return len(content) if isinstance(content, str) else sum(len(text_of(part)) for part in content)


def text_of(part: InputPart) -> str:
    if isinstance(part, InputRefusal):
        return part.refusal
    return part.text if isinstance(part, InputText) else ""


def parts(content: Said | None) -> Sequence[InputPart]:
    return content if isinstance(content, list) else ()


def items_of(bodies: Sequence[Mapping[str, Any]]) -> list[AnyItem]:
    """Return stored items as if a client had sent them, without pictures, whose bytes are in the session."""
    return ITEMS.validate_python(
        [{key: _without_stored_media(value) for key, value in body.items()} for body in bodies]
    )


def _without_stored_media(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    shown = [part for part in value if not (isinstance(part, dict) and MEDIUM in part)]
    return [{**part, "file_url": None} if isinstance(part, dict) and part.get("file_id") else part for part in shown]
