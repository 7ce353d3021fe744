"""Records the calls of server tools in a turn in mistral.rs's format: progress, finished calls, approvals.

The module has no side effects. ``ToolCallLog`` receives every event of one turn, in order. The objects are those of
mistral.rs with additional keys; ``call_id`` distinguishes calls that run at the same time."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.events import (
    ApprovalRequired,
    CallFinished,
    CallOutput,
    CallStarted,
    Event,
    FileProduced,
    Notice,
)
from agent_kernel.core.files import INLINE_BYTES
from jupyter_ext.api.dialects.apng_frames import frames_of

PROGRESS = "agentic_tool_call_progress"
APPROVAL = "agentic_tool_approval_required"
FILE = "file_produced"
NOTICE = "agentic_notice"
"""A type of event that agent-kernel adds: information about the turn for a person, for example that tools are
missing."""
MAX_FILES = 64
"""Maximum number of files that one response lists. All files of the turn can be fetched."""
MAX_NOTICES = 100
BODIES = ("text", "data_base64")
OUTPUT_CHARS = 20_000
"""Maximum characters of each output stream of a call. Of a longer stream, the end is kept."""
PYTHON, SHELL, WEB, CUSTOM = "code_execution", "shell", "web_search", "custom"
TYPES = {"python": PYTHON, "reset_python": PYTHON, "shell": SHELL, "web_search": WEB, "fetch_page": WEB}
"""Type of a call by the name of its server tool. Functions of clients cannot have these names."""
LABELS = {
    "python": "Python code",
    "reset_python": "Python code",
    "shell": "Shell command",
    "web_search": "Web search",
    "fetch_page": "Web page extraction",
}
KINDS = {"python": PYTHON, "shell": SHELL, "web": WEB, "files": "file", "path": "file"}
"""Type of an approval by the first word of the tool's kind."""
DONE = ("stdout", "stderr", "result", "exception")
SHELL_RESULT = ("stdout", "stderr", "exit_code", "status", "working_directory", "timed_out")


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON, or as the model wrote them if that was not a JSON object."""
    raw = arguments.get("_raw")
    if isinstance(raw, str) and len(arguments) == 1:
        return raw
    return json.dumps(dict(arguments), ensure_ascii=False)


def rounds_from_0(event: Event) -> int:
    return max(0, event.round - 1)


@dataclass(slots=True)
class _Call:
    started: CallStarted
    round: int
    output: dict[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return TYPES.get(self.started.name, CUSTOM)

    def add_output(self, body: CallOutput) -> None:
        text = self.output.get(body.stream, "") + body.text
        self.output[body.stream] = text[-OUTPUT_CHARS:]


class ToolCallLog:
    """Collects the calls of server tools in one turn, the files that they produced, and the notices.

    ``records`` is the value of ``agentic_tool_calls`` so far, ``files`` are the produced files by id, and ``notices``
    the notices for people.

    Images and file contents are included until they reach INLINE_BYTES in total. Later ones are left out; clients can
    fetch them by id.
    """

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.files: dict[str, Mapping[str, Any]] = {}
        self.notices: list[dict[str, Any]] = []
        self._running: dict[str, _Call] = {}
        self._room = INLINE_BYTES

    def record(self, event: Event) -> tuple[str, Mapping[str, Any]] | None:
        """Record an event. Return the type and the data of the server-sent event that reports it; None for an event
        that is not reported."""
        match event.body:
            case CallStarted() as body:
                return PROGRESS, self._start(event, body)
            case CallOutput() as body:
                if call := self._running.get(body.call):
                    call.add_output(body)
            case CallFinished() as body:
                return PROGRESS, self._finish(event, body)
            case ApprovalRequired() as body:
                return APPROVAL, approval(event, body)
            case FileProduced() as body:
                self._add_file(body.file)
                return FILE, body.file
            case Notice() as body:
                notice = {"level": body.level, "text": body.line}
                if len(self.notices) < MAX_NOTICES:
                    self.notices.append(notice)
                return NOTICE, {"type": NOTICE, **notice}
        return None

    def _start(self, event: Event, body: CallStarted) -> dict[str, Any]:
        """Return the progress event with the phase ``calling``."""
        call = self._running[body.call] = _Call(body, rounds_from_0(event))
        return _progress(call, "calling", _describe_call(call))

    def _finish(self, event: Event, body: CallFinished) -> dict[str, Any]:
        """Return the progress event with the phase ``complete``, and add the record of the call."""
        began = CallStarted(body.call, body.name, {}, "server")
        call = self._running.pop(body.call, None) or _Call(began, rounds_from_0(event))
        data = _describe_result(call, body)
        record = _record(call, body, data)
        if (pictures := _pictures(body)) and self._fits(sum(map(len, pictures))):
            record["result_images_base64"] = pictures
        self.records.append(record)
        return _progress(call, "complete", data)

    def _add_file(self, file: Mapping[str, Any]) -> None:
        bodies = [str(file[key]) for key in BODIES if key in file]
        entry = file if self._fits(sum(map(len, bodies))) else {key: file[key] for key in file if key not in BODIES}
        self.files[str(file.get("id", len(self.files)))] = entry

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are added to a response of any dialect; empty ones are left out."""
        files = list(self.files.values())[:MAX_FILES]
        fields = {"agentic_tool_calls": self.records, "files": files, "notices": self.notices}
        return {name: value for name, value in fields.items() if value}

    def _fits(self, size: int) -> bool:
        self._room -= size if (fits := size <= self._room) else 0
        return fits


def approval(event: Event, body: ApprovalRequired) -> dict[str, Any]:
    """Return the data of the event ``agentic_tool_approval_required``, which asks for an approval. The client sends the
    answer to ``agent/approvals/{approval_id}``."""
    kind = KINDS.get(body.kind.partition(".")[0], "external" if body.source == "external" else CUSTOM)
    label = LABELS.get(body.name, body.label or body.name)
    return {
        "type": APPROVAL,
        "approval_id": body.approval,
        "session_id": event.session,
        "round": rounds_from_0(event),
        "tool": {"source": body.source, "kind": kind, "label": label, "name": body.name},
        "arguments": dict(body.arguments),
        "code": body.code,
        "unseen": list(body.unseen),
        "call_id": body.call,
        "shown": body.shown,
    }


def _progress(call: _Call, phase: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": PROGRESS,
        "round": call.round,
        "tool_name": call.started.name,
        "phase": phase,
        "data": {"tool_type": call.type, **{key: value for key, value in data.items() if value is not None}},
        "call_id": call.started.call,
    }


def _describe_call(call: _Call) -> dict[str, Any]:
    arguments = call.started.arguments
    if call.started.name == "fetch_page":
        return {"arguments": arguments_text(arguments)}
    match call.type:
        case "code_execution":
            return {"code": arguments.get("code")}
        case "shell":
            return {"commands": arguments.get("commands")}
        case "web_search":
            return {"query": arguments.get("query")}
    return {"arguments": arguments_text(arguments)}


def _describe_result(call: _Call, body: CallFinished) -> dict[str, Any]:
    """Return the result of a call in the form that belongs to the type of its tool. Absent values are None."""
    details = body.details
    match call.type:
        case "code_execution":
            return {
                "stdout": call.output.get("stdout") or None,
                "stderr": call.output.get("stderr") or None,
                "result": details.get("result") or None,
                "exception": details.get("exception") or (body.text if body.status != "success" else None),
                "images_base64": _pictures(body) or None,
                **_film(body),
                "working_directory": details.get("working_directory"),
                "execution_time_ms": round(float(details.get("seconds", body.seconds)) * 1000),
            }
        case "shell":
            denied = "exit_code" not in details and body.status != "success"
            failure = {"stderr": body.text, "status": body.status, "timed_out": body.status == "timeout"}
            known = {key: details.get(key) for key in SHELL_RESULT}
            commands = details.get("commands") or call.started.arguments.get("commands")
            done = {"commands": commands, **(failure if denied else known)}
            return {key: value for key, value in done.items() if value != ""}
        case "web_search":
            facts = {"results_count": details.get("results_count"), "sources": details.get("sources")}
            failed = {"status": body.status, "error": body.text} if body.status != "success" else {}
            return {**_describe_call(call), **facts, **failed}
    return {"content": body.text, **_describe_call(call)}


def _pictures(body: CallFinished) -> list[str]:
    return [str(medium["data"]) for medium in body.media if medium.get("mime") == "image/png" and medium.get("data")]


def _film(body: CallFinished) -> dict[str, Any]:
    """Return the frames of the animations that the call produced, in the form that mistral.rs uses for videos. Of a
    long animation, only the first frames that fit are returned."""
    pictures = [base64.b64decode(picture) for picture in _pictures(body)]
    frames = [frame for picture in pictures for frame in frames_of(picture)]
    if not frames:
        return {}
    encoded, room = list[str](), INLINE_BYTES
    for frame in frames:
        room -= len(frame) * 4 // 3
        if room < 0:
            break
        encoded.append(base64.b64encode(frame).decode("ascii"))
    return {"video_frames_base64": encoded, "video_frame_count": len(frames)}


def _record(call: _Call, body: CallFinished, data: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "round": call.round,
        "name": call.started.name,
        "arguments": _arguments(call),
        "result_content": _content(call, body, data),
        "call_id": body.call,
    }
    if body.files:
        record["file_ids"] = list(body.files)
    return record


def _arguments(call: _Call) -> str:
    """Return the arguments of a call, rebuilt from the fields that are reported for calls of this type."""
    if call.type == CUSTOM or call.started.name == "fetch_page":
        return arguments_text(call.started.arguments)
    known = {key: value for key, value in _describe_call(call).items() if value is not None}
    return json.dumps(known, ensure_ascii=False)


def _content(call: _Call, body: CallFinished, data: Mapping[str, Any]) -> str:
    match call.type:
        case "code_execution":
            lines = [f"{key}: {data[key]}" for key in DONE if data[key]]
            alone = [data["result"]] == [data[key] for key in DONE if data[key]]
            return body.text if alone or not lines else "\n".join(lines)
        case "shell":
            facts = {key: data[key] for key in SHELL_RESULT if data.get(key) is not None}
            return json.dumps(facts, ensure_ascii=False)
        case "web_search" if data["results_count"] is not None:
            return f"{data['results_count']} results\nsources: {', '.join(data['sources'] or ())}"
    return body.text
