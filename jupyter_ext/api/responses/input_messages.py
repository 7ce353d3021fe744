"""Converts the input items of a response into messages, and into the form in which they are stored and listed. The
module has no side effects; an invalid item raises ValueError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from agent_kernel.core.messages import Message, Part, Role, Text, ToolCall, assistant, tool_result
from jupyter_ext.api.dialects import openai_content
from jupyter_ext.api.responses.input_items import (
    AnyItem,
    CodeItem,
    FetchedInput,
    FunctionCallItem,
    FunctionResultItem,
    InputFile,
    InputImage,
    MessageItem,
    ReasoningItem,
    Said,
    ShellCallItem,
    ShellResultItem,
    WebItem,
    characters,
    text_of,
)
from jupyter_ext.turns.dialect_request import SubmittedFile, name_files

Body: TypeAlias = dict[str, Any]
NOTHING: Mapping[str, str] = MappingProxyType({})
SERVED = (ShellCallItem, ShellResultItem, CodeItem)


@dataclass(slots=True)
class Reading:
    """Converts input items into messages, one after the other.

    ``known``: the session already contains the calls of the server's own tools, so they are left out of the messages.
    ``names`` maps the ids of earlier calls to the names of their functions. ``answer`` and ``calls`` collect the
    assistant's message that is being built, to which the next item may still add. Call ``end`` after the last item.
    """

    fetched: FetchedInput
    known: bool
    names: Mapping[str, str]
    messages: list[Message] = field(default_factory=list)
    files: list[SubmittedFile] = field(default_factory=list)
    shell: dict[str, ToolCall] = field(default_factory=dict)
    answer: list[str] | None = None
    calls: list[ToolCall] = field(default_factory=list)

    def read(self, item: AnyItem) -> None:
        match item:
            case MessageItem(role="assistant"):
                self._answer(_plain(item.content))
            case MessageItem():
                role: Role = "user" if item.role == "user" else "system"
                self._add(Message(role, self._parts_of_text(item.content)))
            case FunctionCallItem():
                self._call(item.call)
            case FunctionResultItem():
                parts, name = self._parts_of_text(item.output), self.names.get(item.call_id)
                self._add(Message("tool", parts, call_id=item.call_id, name=name, status="success"))
            case ShellCallItem() if not self.known:
                self.shell[item.call_id] = ToolCall(item.call_id, "shell", {"commands": item.action.commands})
            case ShellResultItem() if item.call_id in self.shell:
                self._ran(self.shell.pop(item.call_id), item.text)
            case CodeItem() if not self.known and item.code:
                self.end()
                self._ran(ToolCall(item.id or f"call_{len(self.messages)}", "python", {"code": item.code}), item.text)

    def end(self) -> None:
        """Complete the assistant's message that is being built."""
        if self.answer is not None:
            self.messages.append(assistant("".join(self.answer), self.calls))
        self.answer, self.calls = None, []

    def _add(self, *messages: Message) -> None:
        self.end()
        self.messages += messages

    def _answer(self, text: str) -> None:
        """Add text of the assistant. Texts are joined into one if they are separated only by tool calls, because some
        clients send the text of an answer after its calls, and the results of the calls follow the text."""
        self.answer = [] if self.answer is None else self.answer
        self.answer.append(text)

    def _call(self, call: ToolCall) -> None:
        self.answer = [] if self.answer is None else self.answer
        self.calls.append(call)

    def _ran(self, call: ToolCall, text: str) -> None:
        self._add(assistant("", [call]), tool_result(call, text, "success"))

    def _parts_of_text(self, given_parts: Said) -> tuple[Part, ...]:
        """Return the parts, with neighbouring texts joined by an empty line."""
        if isinstance(given_parts, str):
            return (Text(given_parts),) if given_parts else ()
        parts: list[Part] = []
        texts: list[str] = []
        earlier = len(self.files)
        for part in given_parts:
            if isinstance(part, InputFile):
                self.files.append(part.to_submitted(self.fetched))
            elif isinstance(part, InputImage):
                parts += [*_join(texts), part.medium(self.fetched)]
                texts = []
            elif text := text_of(part):
                texts.append(text)
        if not (parts or texts) and (names := name_files(self.files[earlier:])):
            texts = [names]
        return (*parts, *_join(texts))


def messages_of(
    items: Sequence[AnyItem],
    fetched: FetchedInput,
    *,
    known: bool = False,
    alone: bool = False,
    names: Mapping[str, str] = NOTHING,
) -> tuple[list[Message], tuple[SubmittedFile, ...]]:
    """Return the messages and the submitted files. ``alone``: results at the beginning are accepted without their
    calls. If all messages are instructions, the last one becomes the prompt."""
    length = sum(characters(item) for item in items if not (known and isinstance(item, SERVED)))
    openai_content.check_length(length, "input")  # checked before the texts are joined
    reading = Reading(fetched, known, names)
    for item in items:
        reading.read(item)
    reading.end()
    messages = reading.messages
    if messages and all(message.role == "system" for message in messages):
        messages[-1] = Message("user", messages[-1].parts)
    fetched_ids = {id(one) for one in fetched.files.values()}
    openai_content.within_limits(messages, [one for one in reading.files if id(one) not in fetched_ids], "input")
    return openai_content.name_results(messages, alone=alone), tuple(reading.files)


def has_server_calls(items: Sequence[AnyItem]) -> bool:
    """Return whether the items include calls of server tools."""
    return any(isinstance(item, SERVED) for item in items)


def _join(texts: Sequence[str]) -> list[Part]:
    return [Text("\n\n".join(texts))] if texts else []


def _plain(content: Said) -> str:
    return content if isinstance(content, str) else "".join(text_of(part) for part in content)


# ---------------------------------------------------------------------------------------------- items to store and list


def items_to_store(items: Sequence[AnyItem], stem: str, fetched: FetchedInput) -> list[Body]:
    """Return the items as they are stored and listed: with ids, and without the bytes of pictures and files."""
    return [{**_item_to_store(item, fetched), "id": item.id or _id(item, stem, at)} for at, item in enumerate(items)]


def _id(item: AnyItem, stem: str, at: int) -> str:
    return f"{PREFIXES.get(str(item.type), 'item')}_{stem}_i{at}"


PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def _item_to_store(item: AnyItem, fetched: FetchedInput) -> Body:
    match item:
        case MessageItem(role="assistant"):
            text = {"type": "output_text", "text": _plain(item.content), "annotations": [], "logprobs": []}
            return {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
        case MessageItem():
            return {
                "type": "message",
                "role": item.role,
                "status": "completed",
                "content": _parts_to_store(item.content, fetched),
            }
        case FunctionCallItem():
            namespace = {"namespace": item.namespace} if item.namespace else {}
            call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return {"type": item.type, **call, **namespace, "status": "completed"}
        case FunctionResultItem():
            output = item.output if isinstance(item.output, str) else _parts_to_store(item.output, fetched)
            return {"type": item.type, "call_id": item.call_id, "output": output, "status": "completed"}
        case ReasoningItem():
            return {"type": item.type, "summary": []}
        case ShellResultItem():
            printed = [one.model_dump() for one in item.output]
            return {"type": item.type, "call_id": item.call_id, "output": printed, "status": "completed"}
        case ShellCallItem():
            action = {"commands": item.action.commands}
            return {"type": item.type, "call_id": item.call_id, "action": action, "status": "completed"}
        case CodeItem():
            return {"type": item.type, "code": item.code, "outputs": None, "container_id": "", "status": "completed"}
        case WebItem():
            return {"type": item.type, "status": "completed", "action": {"type": "search", "query": ""}}
    return {"type": "item_reference"}


def _parts_to_store(content: Said, fetched: FetchedInput) -> list[Body]:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    stored: list[Body] = []
    for part in content:
        if isinstance(part, InputImage):
            stored.append(part.to_store(None if part.link or part.file_id else part.medium(fetched)))
        elif isinstance(part, InputFile):
            stored.append(part.to_store())
        else:
            stored.append({"type": "input_text", "text": text_of(part)})
    return stored


def with_files(bodies: Sequence[Body], ids: Sequence[str]) -> list[Body]:
    """Return the items in order, with their inline files replaced by the ids under which the files are stored."""
    left = iter(ids)
    for body in bodies:
        parts = body.get("content", body.get("output"))
        for part in parts if isinstance(parts, list) else ():
            if part.get("type") == "input_file":
                part["file_id"] = next(left, part["file_id"])
    return list(bodies)
