"""Defines the options of a turn, and builds the body of its request from the prompt and the options."""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from agent_kernel.client.approval import Approve
from agent_kernel.client.file import File
from agent_kernel.client.input_file import Given, input_file
from agent_kernel.client.output_schema import shape_of
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import RequestedFile, picture_type
from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import Tool

SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens", "logprobs"),
    *("top_logprobs", "presence_penalty", "frequency_penalty", "logit_bias", "reasoning_effort"),
)
COPIED = (
    *("model", "permission", "max_tool_rounds", "tool_choice", "parallel_calls", "history", "history_limit"),
    *("where", "web", "replaces", "remembered", "effort", "instructions"),
)
"""Options that the request body has under the same name and with the same value."""
LISTS = ("skills", "denied")


class TurnOptions(TypedDict, total=False):
    """Options of one turn. All of them can also be passed to the client, for all its turns.

    ``session`` is the id of the session; without one, the turn gets a new session, whose id is in the result.
    ``private`` keeps a new session in the server's memory only. ``model`` names the engine. ``busy`` says what to do if
    another turn of the session runs: ``wait`` in line, or ``raise`` SessionBusy. With ``leave_running`` the turn
    continues after the program stops reading its events.

    ``functions`` are typed functions of this process, sync or async, that the model may call. ``tools`` are names or
    groups of the server's tools (None: all that it offers; empty: none). ``approve`` is called for calls that need a
    decision of a person. Without ``approve`` such calls are denied. With ``answers`` True they wait until the program,
    which reads the events, sends a decision.

    ``files`` are uploaded for the turn, ``outputs`` are files requested by name, and ``media`` are images and videos
    for the model. ``output`` is the form of the answer (``output_schema.py``), ``context`` maps titles to notes that
    the user does not see, and ``messages`` is a conversation to start with. All others are as in ``TurnRequest`` and
    ``Sampling``.
    """

    session: str
    private: bool
    model: str
    busy: Literal["wait", "raise"]
    leave_running: bool
    functions: Sequence[Tool | Callable[..., Any]]
    tools: Sequence[str] | None
    approve: Approve | None
    answers: bool
    files: Sequence[Given | File]
    outputs: Sequence[str | RequestedFile]
    media: Sequence[Given]
    output: Any
    context: Mapping[str, str]
    messages: Sequence[Message | Mapping[str, Any]]
    history: Literal["auto", "append", "replay"]
    history_limit: int
    permission: Literal["auto", "ask", "deny"]
    denied: Sequence[str]
    remembered: bool
    effort: Literal["quick", "auto", "thorough"]
    instructions: str
    max_tool_rounds: int
    tool_choice: str
    parallel_calls: bool
    skills: Sequence[str]
    web: Mapping[str, Any]
    where: Literal["sandbox", "live", "draft"]
    replaces: str
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    seed: int
    max_tokens: int
    stop: Sequence[str]
    logprobs: bool
    top_logprobs: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    reasoning_effort: str


def check_options(options: Mapping[str, Any]) -> None:
    """Check the names of options. Raises TypeError for an unknown one, as Python does for keyword arguments."""
    if unknown := sorted(set(options) - set(TurnOptions.__annotations__)):
        raise TypeError(f"a turn has no option {unknown[0]!r}")


def body_of(prompt: str, options: TurnOptions, functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build the body of the ``turns`` route. The body lacks the ids of files, which are known only after the upload.

    ``functions`` are the functions in their wire format. Blocking if media are paths.
    """
    values: Mapping[str, Any] = options
    body: dict[str, Any] = {"prompt": prompt, "queue": values.get("busy", "wait") == "wait"}
    body |= {name: values[name] for name in COPIED if values.get(name) is not None}
    body |= {name: list(values[name]) for name in LISTS if values.get(name)}
    # A program that passes ``approve`` can answer approval requests, unless it says otherwise.
    can_answer = values.get("approve") is not None if values.get("answers") is None else values["answers"]
    body |= {
        "sampling": _sampling(values),
        "answers": ["*"] if can_answer else [],
        "context": [{"title": title, "text": text} for title, text in (values.get("context") or {}).items()],
        "messages": [_message(message) for message in values.get("messages") or ()],
        "media": [_medium(medium) for medium in values.get("media") or ()],
        "outputs": [dataclasses.asdict(_requested_file(output)) for output in values.get("outputs") or ()],
        "output": dict(shape_of(values["output"]).wire) if values.get("output") is not None else None,
    }
    names = [str(function["name"]) for function in functions]
    if functions:
        body |= {"functions": [dict(function) for function in functions], "client_tools": names}
    body = {name: value for name, value in body.items() if value not in (None, [], {})}
    narrowed = values.get("tools")
    return body if narrowed is None else body | {"tools": [*narrowed, *names]}  # an empty list means no tools


def _sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {name: values[name] for name in SAMPLING if values.get(name) is not None}
    if stop := values.get("stop"):
        sampling["stop"] = [stop] if isinstance(stop, str) else list(stop)
    return sampling


def _requested_file(source: str | RequestedFile) -> RequestedFile:
    return RequestedFile(source) if isinstance(source, str) else source


def _message(source: Message | Mapping[str, Any]) -> dict[str, Any]:
    return source.to_json() if isinstance(source, Message) else dict(source)


def _medium(given: Given) -> dict[str, str]:
    """Read an image or a video and return ``{mime, data}``. The type is the given MIME type, else it is detected from
    the first bytes or the name. Raises InvalidRequest for other types."""
    file = input_file(given)
    source = file.open()
    try:
        data = source.read()
    finally:
        if not file.borrowed:
            source.close()
    mime = file.mime or picture_type(data) or file.mime_type
    if not mime.startswith(("image/", "video/")):
        raise InvalidRequest(
            f"{os.fspath(file.name)!r} is neither a picture nor a video.",
            hint="media=[...] accepts only pictures and videos. Give other files with files=[...].",
        )
    return {"mime": mime, "data": base64.b64encode(data).decode("ascii")}
