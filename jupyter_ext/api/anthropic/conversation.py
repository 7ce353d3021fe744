"""Converts the conversation of an Anthropic request into messages and submitted files. The module has no side effects:
``sources`` lists what has to be fetched or read, and the caller passes the results to ``conversation``."""

from __future__ import annotations

import html
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import is_text
from agent_kernel.core.messages import Media, Message, Part, Text, ToolCall, assistant, system, tool_result
from jupyter_ext.api.anthropic import server_tool_blocks as served
from jupyter_ext.api.anthropic.request import (
    Base64Source,
    ContainerUploadBlock,
    ContentSource,
    DocumentBlock,
    FileSource,
    ImageBlock,
    MessageBody,
    PromptBody,
    RedactedThinkingBlock,
    SearchResultBlock,
    ServerResultBlock,
    ServerToolUseBlock,
    TextBlock,
    TextSource,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
)
from jupyter_ext.api.dialects.openai_content import (
    MAX_LINKS,
    MAX_MEDIA,
    MAX_PICTURES,
    NO_RESULTS,
    NO_USER,
    from_base64,
    visible_media,
    within_limits,
)
from jupyter_ext.turns.dialect_request import SubmittedFile, name_files

GO_ON = "Go on."
OF_USER = (TextBlock, ImageBlock, DocumentBlock, SearchResultBlock, ToolResultBlock, ContainerUploadBlock)
OF_ASSISTANT = (
    TextBlock,
    ThinkingBlock,
    RedactedThinkingBlock,
    ToolUseBlock,
    ServerToolUseBlock,
    ServerResultBlock,
    ContainerUploadBlock,
)


@dataclass(frozen=True, slots=True)
class Source:
    """Content that the request refers to: by a URL, or by the id of a file on the server."""

    kind: Literal["url", "file"]
    name: str


@dataclass(frozen=True, slots=True)
class AnthropicConversation:
    """The conversation of a request, converted into messages.

    ``messages`` include the calls of server tools that the client sends back. ``spoken`` are the same messages without
    these calls; they are used if the session on this server already holds the calls.
    """

    messages: tuple[Message, ...]
    spoken: tuple[Message, ...]
    files: tuple[SubmittedFile, ...]


def sources(body: PromptBody) -> list[Source]:
    """Return the sources that ``conversation`` needs, each once: pictures by URL or file id, documents by URL. Raises
    InvalidRequest."""
    ordered: dict[Source, None] = {}
    for block in _parts(body.messages):
        if isinstance(block.source, UrlSource):
            ordered[Source("url", block.source.url)] = None
        elif isinstance(block.source, FileSource) and isinstance(block, ImageBlock):
            ordered[Source("file", block.source.file_id)] = None
    if sum(one.kind == "url" for one in ordered) > MAX_LINKS:
        raise InvalidRequest(f"A request can have at most {MAX_LINKS} URLs to fetch.")
    if sum(one.kind == "file" for one in ordered) > MAX_PICTURES:
        raise InvalidRequest(f"messages: at most {MAX_PICTURES} pictures")
    return list(ordered)


def conversation(body: PromptBody, fetched: Mapping[Source, SubmittedFile]) -> AnthropicConversation:
    """Convert the conversation. ``fetched`` maps each source that the function ``sources`` lists to its content. Raises
    InvalidRequest."""
    reading = _Reading(fetched)
    try:
        messages, spoken = reading.messages(body)
        files = tuple(dict.fromkeys(reading.files))
        within_limits(messages, files)
    except ValueError as error:
        raise InvalidRequest(f"messages: {error}") from None
    return AnthropicConversation(tuple(messages), tuple(spoken), files)


def _parts(messages: Sequence[MessageBody]) -> Iterator[ImageBlock | DocumentBlock]:
    for message in messages:
        for block in message.blocks:
            inner = block.content if isinstance(block, ToolResultBlock) and isinstance(block.content, list) else []
            for part in (block, *inner):
                if isinstance(part, ImageBlock | DocumentBlock):
                    yield part


@dataclass(slots=True)
class _Reading:
    """Converts one conversation. Use a new object for each conversation."""

    fetched: Mapping[Source, SubmittedFile]
    files: list[SubmittedFile] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def messages(self, body: PromptBody) -> tuple[list[Message], list[Message]]:
        """Return the messages with the calls of the server's tools, and the messages without them."""
        whole = [system(body.instructions)] if body.instructions.strip() else []
        spoken = list(whole)
        for number, message in enumerate(body.messages):
            _check_blocks(message, number)
            if message.role == "assistant":
                rounds = self._rounds(message)
                whole += [converted for one in rounds for converted in one.messages()]
                spoken += _answers_without_server_calls(rounds)
                continue
            converted = self._user(message) if message.role == "user" else [system(_text(message))]
            whole += converted
            spoken += converted
        if not body.messages or body.messages[-1].role == "assistant":
            continuation = _continuation(body.messages[-1]) if body.messages else Message("user", (Text(GO_ON),))
            whole.append(continuation)
            spoken.append(continuation)
        repeats = any(isinstance(block, ServerToolUseBlock) for message in body.messages for block in message.blocks)
        spoken = spoken if repeats else whole
        _check_results(whole)
        if repeats:
            _check_results(spoken)
        return whole, spoken

    # --------------------------------------------------------------------------------------------- messages of the user

    def _user(self, message: MessageBody) -> list[Message]:
        """Convert a message of the user: tool results first, as models expect them, then its other content."""
        results = [self._result(block) for block in message.blocks if isinstance(block, ToolResultBlock)]
        earlier = len(self.files)
        parts = [part for block in message.blocks for part in self._parts_of_block(block)]
        if not (parts or results) and (names := name_files(self.files[earlier:])):
            parts = [Text(names)]
        return [*results, Message("user", tuple(parts))] if parts else results

    def _result(self, block: ToolResultBlock) -> Message:
        content = block.content or ""
        parts = (
            [Text(content)]
            if isinstance(content, str)
            else [part for one in content for part in self._parts_of_block(one)]
        )
        return Message(
            "tool",
            tuple(part for part in parts if part != Text("")),
            call_id=block.tool_use_id,
            name=self.names.get(block.tool_use_id),
            status="error" if block.is_error else "success",
        )

    def _parts_of_block(self, block: Any) -> list[Part]:
        match block:
            case TextBlock(text=text):
                return [Text(text)] if text else []
            case ImageBlock(source=source):
                return [self._picture(source)]
            case DocumentBlock():
                return self._document(block)
            case SearchResultBlock():
                text = "\n".join(one.text for one in block.content)
                return [Text(_frame("search_result", text, title=block.title, source=block.source))]
            case ToolReferenceBlock():
                return [Text(block.tool_name)]
            case ContainerUploadBlock():
                self.files.append(SubmittedFile(id=block.file_id))
        return []

    def _picture(self, source: Base64Source | UrlSource | FileSource) -> Media:
        if isinstance(source, Base64Source):
            return visible_media(source.media_type.lower(), from_base64(source.data, MAX_MEDIA))
        file = self.fetched[_source(source)]
        return visible_media(file.mime, file.data)

    def _document(self, block: DocumentBlock) -> list[Part]:
        """Convert a document: text becomes a part of the message, anything else becomes a file of the turn."""
        source = block.source
        match source:
            case TextSource(data=text):
                return [_text_of(block, text)]
            case ContentSource(content=inner):
                text = inner if isinstance(inner, str) else "\n".join(part.text for part in inner)
                return [_text_of(block, text)]
            case FileSource():
                file = SubmittedFile(id=source.file_id)
            case Base64Source():
                file = SubmittedFile(name="", mime=source.media_type.lower(), data=from_base64(source.data, MAX_MEDIA))
            case UrlSource():
                file = self.fetched[_source(source)]
        if file.data and is_text(file.mime):
            return [_text_of(block, file.data.decode("utf-8", "replace"))]
        if not (file.id or file.data):
            raise ValueError("a document is empty")
        file = file if file.id else replace(file, name=_name(block.title or file.name, file.mime))
        self.files.append(file)
        context = f"{block.title or file.name or file.id}: {block.context}" if block.context else ""
        return [Text(context)] if context else []

    # ---------------------------------------------------------------------------------------- messages of the assistant

    def _rounds(self, message: MessageBody) -> list[_Round]:
        """Split a message of the assistant into its rounds of tool calls. The results of tools that the API's server
        ran are in the same message, and belong to their rounds."""
        rounds = [_Round()]
        for block in message.blocks:
            if rounds[-1].results and not isinstance(block, ServerResultBlock):
                rounds.append(_Round())
            if isinstance(block, ToolUseBlock):
                self.names[block.id] = block.name
            rounds[-1].add(block)
        return rounds


@dataclass(slots=True)
class _Round:
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    ran: dict[str, ToolCall] = field(default_factory=dict)
    results: dict[str, Message] = field(default_factory=dict)

    def add(self, block: Any) -> None:
        match block:
            case TextBlock(text=text):
                self.text += text
            case ThinkingBlock(thinking=text):
                self.reasoning += text
            case ToolUseBlock():
                self.calls.append(ToolCall(block.id, block.name, block.input))
            case ServerToolUseBlock():
                arguments = served.arguments_of(block.name, block.input)
                self.ran[block.id] = ToolCall(block.id, served.OURS.get(block.name, block.name), arguments)
            case ServerResultBlock() if call := self.ran.get(block.tool_use_id):
                status: Literal["error", "success"] = "success"
                if block.is_error or served.is_failed(block.content):
                    status = "error"
                self.results[call.id] = tool_result(call, served.result_text(block.content), status)

    def messages(self) -> list[Message]:
        """Return the messages of the round. Calls without a result are omitted, because later messages follow, so that
        their results can no longer arrive."""
        ran = [call for call in self.ran.values() if call.id in self.results]
        converted = [assistant(self.text, ran, self.reasoning), *(self.results[call.id] for call in ran)] if ran else []
        if self.calls:
            converted.append(assistant("" if ran else self.text, self.calls, "" if ran else self.reasoning))
        if not converted and (self.text or self.reasoning):
            converted.append(assistant(self.text, (), self.reasoning))
        return converted


def _answers_without_server_calls(rounds: Sequence[_Round]) -> list[Message]:
    """Return the assistant's text and the calls for the client. Text beside calls of the server's tools is omitted with
    these calls."""
    calls = [call for one in rounds for call in one.calls]
    answers = [one for one in rounds if not (calls and one.ran)]
    words, thought = "".join(one.text for one in answers), "".join(one.reasoning for one in answers)
    return _Round(words, thought, calls).messages()


def _text(message: MessageBody) -> str:
    return "\n".join(block.text for block in message.blocks)


def _check_blocks(message: MessageBody, number: int) -> None:
    kinds: tuple[type, ...] = {"user": OF_USER, "assistant": OF_ASSISTANT}.get(message.role, (TextBlock,))
    if other := next((block for block in message.blocks if not isinstance(block, kinds)), None):
        raise ValueError(f"{number}: a message of the {message.role} cannot have a block {other.type}")


def _continuation(last: MessageBody) -> Message:
    """Return the message that makes a model continue its last answer, which was stopped during calls of server tools.
    Raises ValueError if ``last`` contains no such calls."""
    if not any(isinstance(block, ServerToolUseBlock | ServerResultBlock) for block in last.blocks):
        raise ValueError(NO_RESULTS if any(isinstance(one, ToolUseBlock) for one in last.blocks) else NO_USER)
    return Message("user", (Text(GO_ON),))


def _check_results(messages: Sequence[Message]) -> None:
    """Check that each tool result directly follows its call. Results at the beginning, before any other message, are
    accepted without calls, because the session may have the calls. Raises ValueError."""
    for at, message in enumerate(messages):
        if not message.calls:
            continue
        behind = {result.call_id for result in _results_behind(messages, at)}
        if missing := [call.id for call in message.calls if call.id not in behind]:
            raise ValueError(f"the tool_use {missing[0][:80]} has no tool_result in the next message")
    known = {call.id for message in messages for call in message.calls}
    first = next((at for at, message in enumerate(messages) if message.role not in ("system", "tool")), len(messages))
    for message in messages[first:]:
        if message.role == "tool" and message.call_id not in known:
            raise ValueError(f"the tool_result for {(message.call_id or '')[:80]} answers no tool_use before it")


def _results_behind(messages: Sequence[Message], at: int) -> Iterator[Message]:
    for message in messages[at + 1 :]:
        if message.role != "tool":
            return
        yield message


def _source(source: UrlSource | FileSource) -> Source:
    return Source("url", source.url) if isinstance(source, UrlSource) else Source("file", source.file_id)


def _text_of(block: DocumentBlock, text: str) -> Text:
    return Text(_frame("document", text, title=block.title, context=block.context))


def _frame(tag: str, text: str, **facts: str | None) -> str:
    """Enclose text from other sources in ``tag``, which marks its beginning and its end. ``facts`` become attributes of
    the tag."""
    attributes = "".join(f' {name}="{html.escape(fact)}"' for name, fact in facts.items() if fact)
    return f"<{tag}{attributes}>\n{text}\n</{tag}>\n"


def _name(title: str, mime: str) -> str:
    """Return a file name with an extension, from which tools recognize the file's type."""
    name = title.replace("/", "_").strip() or "document"
    extension = mimetypes.guess_extension(mime) or ""
    return name if not extension or name.lower().endswith(extension) else f"{name}{extension}"
