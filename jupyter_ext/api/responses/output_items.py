"""Builds the output items of a response, and the stream events that report each item. The module has no side effects.

An event is a name and its data; the caller adds the number. The id of an item contains the unique part of the id of its
response. If a client sends the item back, the server thus recognizes the response to which it belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from agent_kernel.core.events import CallFinished, CallOutput, CallReturned, CallStarted
from jupyter_ext.api.dialects.tool_call_log import arguments_text

Body: TypeAlias = dict[str, Any]
Said: TypeAlias = tuple[str, Mapping[str, Any]]
NOT_RUN = 126
"""The exit code of a shell call that did not run; shells return it for a command that may not be executed."""
SOURCES = "web_search_call.action.sources"
OUTPUTS = "code_interpreter_call.outputs"
LOGPROBS = "message.output_text.logprobs"
"""The value of ``include`` with which a client requests the log probabilities of the answer's tokens."""


class Output:
    """The items of one response, in order. ``stem`` is the unique part of the response's id; ``container`` is the id of
    its session."""

    def __init__(self, stem: str, container: str, include: frozenset[str] = frozenset()) -> None:
        self.items: list[Body] = []
        self.container = container
        self.include = include
        self._stem = stem

    def open(self, prefix: str, item: Mapping[str, Any]) -> int:
        """Add an item, give it an id and return its index."""
        self.items.append({"id": f"{prefix}_{self._stem}_{len(self.items)}", **item})
        return len(self.items) - 1

    def begin_item(self, index: int) -> Said:
        return "response.output_item.added", {"output_index": index, "item": dict(self.items[index])}

    def end_item(self, index: int, **last: Any) -> Said:
        self.items[index] = {**self.items[index], **last}
        return "response.output_item.done", {"output_index": index, "item": dict(self.items[index])}

    def place(self, index: int) -> Body:
        return {"item_id": self.items[index]["id"], "output_index": index}


class AnswerText:
    """An item of the type message with one text. ``files`` are the files that the message may cite, in the format of
    ``File.to_json``."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._text: list[str] = []
        self.files: list[Mapping[str, Any]] = []
        self.tokens: list[Body] = []
        self._index = output.open(
            "msg", {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
        )
        self._place = {**output.place(self._index), "content_index": 0}

    def begin(self) -> Iterator[Said]:
        yield self._output.begin_item(self._index)
        yield "response.content_part.added", {**self._place, "part": self._part([])}

    def say(self, text: str) -> Iterator[Said]:
        self._text.append(text)
        yield "response.output_text.delta", {**self._place, "delta": text, "logprobs": []}

    def end(self, status: str) -> Iterator[Said]:
        """End the message, with the log probabilities and the files that have arrived."""
        text = "".join(self._text)
        cited = [_citation(file, text, self._output.container) for file in self.files]
        for number, annotation in enumerate(cited):
            yield (
                "response.output_text.annotation.added",
                {**self._place, "annotation_index": number, "annotation": annotation},
            )
        part = self._part(cited)
        yield "response.output_text.done", {**self._place, "text": text, "logprobs": list(self.tokens)}
        yield "response.content_part.done", {**self._place, "part": part}
        yield self._output.end_item(self._index, status=status, content=[part])

    def mark_commentary(self) -> None:
        """Mark the message as commentary, because more calls follow it and it is not the answer."""
        self._output.items[self._index]["phase"] = "commentary"

    def _part(self, annotations: list[Body]) -> Body:
        text = "".join(self._text)
        return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": list(self.tokens)}


class Thought:
    """An item with the complete reasoning of the model. If ``summary`` is true, because the client asked for a summary,
    the reasoning is the item's summary and not its content: many clients show the summary only."""

    def __init__(self, output: Output, *, summary: bool = False) -> None:
        self._output = output
        self._text: list[str] = []
        self._field = "summary" if summary else "content"
        self._kind = "summary_text" if summary else "reasoning_text"
        self._part = "response.reasoning_summary_part" if summary else "response.content_part"
        self._event = f"response.reasoning_{'summary_' * summary}text"
        self._index = output.open("rs", {"type": "reasoning", "summary": [], "content": [], "status": "in_progress"})
        self._place = {**output.place(self._index), f"{self._field}_index": 0}

    def begin(self) -> Iterator[Said]:
        yield self._output.begin_item(self._index)
        yield f"{self._part}.added", {**self._place, "part": {"type": self._kind, "text": ""}}

    def say(self, text: str) -> Iterator[Said]:
        self._text.append(text)
        yield f"{self._event}.delta", {**self._place, "delta": text}

    def end(self, status: str) -> Iterator[Said]:
        part = {"type": self._kind, "text": "".join(self._text)}
        yield f"{self._event}.done", {**self._place, "text": part["text"]}
        yield f"{self._part}.done", {**self._place, "part": part}
        yield self._output.end_item(self._index, status=status, **{self._field: [part]})


class Ran(Protocol):
    """An item for a call that the server runs. ``end`` is called without a result if the turn ended before the call."""

    def begin(self) -> Iterator[Said]: ...

    def add_output(self, output: CallOutput) -> Iterator[Said]: ...

    def end(self, result: CallFinished | None) -> Iterator[Said]: ...


class CodeRun:
    def __init__(self, output: Output, call: CallStarted) -> None:
        self._output = output
        self._code = str(call.arguments.get("code", ""))
        item = {"type": "code_interpreter_call", "code": "", "container_id": output.container, "outputs": None}
        self._index = output.open("ci", {**item, "status": "in_progress"})

    def begin(self) -> Iterator[Said]:
        place = self._output.place(self._index)
        yield self._output.begin_item(self._index)
        yield "response.code_interpreter_call.in_progress", place
        yield "response.code_interpreter_call_code.delta", {**place, "delta": self._code}
        yield "response.code_interpreter_call_code.done", {**place, "code": self._code}
        yield "response.code_interpreter_call.interpreting", place

    def add_output(self, output: CallOutput) -> Iterator[Said]:
        """Yield nothing: the API has no event for the output of running code."""
        yield from ()

    def end(self, result: CallFinished | None) -> Iterator[Said]:
        if _ran(result):
            yield "response.code_interpreter_call.completed", self._output.place(self._index)
        outputs = _logs_and_pictures(result) if OUTPUTS in self._output.include and result is not None else None
        yield self._output.end_item(self._index, code=self._code, outputs=outputs, status=_status(result))


class ShellRun:
    """A shell call as two items: the call and its output. All commands run as lines of one script."""

    def __init__(self, output: Output, call: CallStarted) -> None:
        self._output = output
        arguments = call.arguments
        commands = arguments.get("commands")
        self._commands = [str(command) for command in commands] if isinstance(commands, list | tuple) else []
        self._action = {
            "commands": self._commands,
            "max_output_length": arguments.get("max_output_length"),
            "timeout_ms": arguments.get("timeout_ms"),
        }
        self._call = call.call
        environment = {"type": "container_reference", "container_id": output.container}
        item = {"type": "shell_call", "call_id": call.call, "action": {**self._action, "commands": []}}
        self._index = output.open("sc", {**item, "environment": environment, "status": "in_progress"})
        self._told: int | None = None

    def begin(self) -> Iterator[Said]:
        yield self._output.begin_item(self._index)
        for number, command in enumerate(self._commands):
            place = {"output_index": self._index, "command_index": number}
            yield "response.shell_call_command.added", {**place, "command": ""}
            yield "response.shell_call_command.delta", {**place, "delta": command}
            yield "response.shell_call_command.done", {**place, "command": command}
        yield self._output.end_item(self._index, action=self._action, status="completed")

    def add_output(self, output: CallOutput) -> Iterator[Said]:
        yield from self._open_output()
        stream = "stderr" if output.stream == "stderr" else "stdout"
        yield "response.shell_call_output_content.delta", {**self._position, "delta": {stream: output.text}}

    def end(self, result: CallFinished | None) -> Iterator[Said]:
        yield from self._open_output()
        printed = [_exit_of(result)]
        yield "response.shell_call_output_content.done", {**self._position, "output": printed}
        assert self._told is not None
        yield self._output.end_item(self._told, output=printed, status="completed" if _ran(result) else "incomplete")

    def _open_output(self) -> Iterator[Said]:
        if self._told is None:
            item = {"type": "shell_call_output", "call_id": self._call, "output": []}
            length = {"max_output_length": self._action["max_output_length"], "status": "in_progress"}
            self._told = self._output.open("sco", item | length)
            yield self._output.begin_item(self._told)

    @property
    def _position(self) -> Body:
        assert self._told is not None
        return {**self._output.place(self._told), "command_index": 0}


class WebRun:
    """An item for a web search, or for one page that was opened."""

    def __init__(self, output: Output, call: CallStarted) -> None:
        self._output = output
        self._query = str(call.arguments.get("query", ""))
        self._url = None if call.name == "web_search" else str(call.arguments.get("url", ""))
        self._index = output.open(
            "ws", {"type": "web_search_call", "status": "in_progress", "action": self._action(None)}
        )

    def begin(self) -> Iterator[Said]:
        yield self._output.begin_item(self._index)
        yield "response.web_search_call.in_progress", self._output.place(self._index)
        yield "response.web_search_call.searching", self._output.place(self._index)

    def add_output(self, output: CallOutput) -> Iterator[Said]:
        yield from ()

    def end(self, result: CallFinished | None) -> Iterator[Said]:
        if _ran(result):
            yield "response.web_search_call.completed", self._output.place(self._index)
        yield self._output.end_item(self._index, action=self._action(result), status=_status(result))

    def _action(self, result: CallFinished | None) -> Body:
        if self._url is not None:
            return {"type": "open_page", "url": self._url}
        action: Body = {"type": "search", "query": self._query, "queries": [self._query]}
        if SOURCES in self._output.include and result is not None:
            action["sources"] = [{"type": "url", "url": url} for url in source_urls(result)]
        return action


RUNS: Mapping[str, type[CodeRun] | type[ShellRun] | type[WebRun]] = {
    "python": CodeRun,
    "shell": ShellRun,
    "web_search": WebRun,
    "fetch_page": WebRun,
}
"""The class of the item by the name of the tool. Calls of other tools produce no items."""


def call_for_client(output: Output, call: CallReturned, namespaces: Mapping[str, Sequence[str]]) -> Iterator[Said]:
    """Yield the events of a complete call that the client runs. ``namespaces`` maps the name of a function to its
    namespace and its name there."""
    arguments = arguments_text(call.arguments)
    name = call.name
    item: Body = {"type": "function_call", "call_id": call.call, "name": name, "arguments": "", "status": "in_progress"}
    if call.name in namespaces:
        namespace, name = namespaces[call.name]
        item |= {"namespace": namespace, "name": name}
    index = output.open("fc", item)
    place = output.place(index)
    yield output.begin_item(index)
    yield "response.function_call_arguments.delta", {**place, "delta": arguments}
    yield "response.function_call_arguments.done", {**place, "arguments": arguments, "name": name}
    yield output.end_item(index, arguments=arguments, status="completed")


def source_urls(result: CallFinished) -> list[str]:
    """Return the URLs that a search found; if its text was truncated, the domains."""
    try:
        sources = json.loads(result.text)["output"]
        return [str(source["url"]) for source in sources]
    except (ValueError, KeyError, TypeError):
        return [f"https://{domain}/" for domain in result.details.get("sources", ())]


def _citation(file: Mapping[str, Any], text: str, container: str) -> Body:
    """Return the citation of a file. Its indices enclose the first mention of the file's name in the text; both are 0
    if the text does not mention it."""
    name = str(file["name"])
    start = max(0, text.find(name))
    end = start + len(name) if text.startswith(name, start) else 0
    ids = {"container_id": container, "file_id": file["id"], "filename": name}
    return {"type": "container_file_citation", **ids, "start_index": start if end else 0, "end_index": end}


def _ran(result: CallFinished | None) -> bool:
    """Return whether the tool ran to its end, even if it ended with an error. False if the call was denied, or if the
    turn ended first."""
    return result is not None and result.status != "denied"


def _status(result: CallFinished | None) -> str:
    if result is None:
        return "incomplete"
    return "completed" if result.status == "success" else "failed"


def _logs_and_pictures(result: CallFinished) -> list[Body]:
    """Return the text that the code printed, and those of its pictures whose bytes the event contains."""
    printed: list[Body] = [{"type": "logs", "logs": result.text}] if result.text else []
    for medium in result.media:
        if medium.get("data") and str(medium["mime"]).startswith("image/"):
            printed.append({"type": "image", "url": f"data:{medium['mime']};base64,{medium['data']}"})
    return printed


def _exit_of(result: CallFinished | None) -> Body:
    """Return the outcome of the script in OpenAI's format. For a call that was not run, stderr contains the reason."""
    if result is None:
        return {"stdout": "", "stderr": "The turn ended first.", "outcome": {"type": "exit", "exit_code": NOT_RUN}}
    details = result.details
    if details.get("timed_out") or result.status == "timeout":
        outcome: Body = {"type": "timeout"}
    else:
        code = details.get("exit_code")
        outcome = {"type": "exit", "exit_code": code if isinstance(code, int) else NOT_RUN}
    ran = "stdout" in details
    streams = {"stdout": str(details["stdout"]), "stderr": str(details.get("stderr", ""))} if ran else {}
    return {"stdout": "", "stderr": "" if ran else result.text, "outcome": outcome} | streams
