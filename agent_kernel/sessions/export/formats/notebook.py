"""Converts a session to a notebook document with the code that the agent ran, in order, so that the code can run
without the agent. Nothing is written to the disk. Such a notebook cannot be imported again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_kernel.core.messages import Message
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export.formats.markdown import code_span, prose
from agent_kernel.sessions.export.formats.message_list import visible_messages


def write(transcript: Transcript, branch: str | None, left_out: dict[str, int]) -> bytes:
    """Write one branch. User messages become Markdown cells, and each piece of Python code becomes a code cell with its
    text output. The cell of code that failed is tagged, so that running all cells continues after it. Calls of other
    tools, media and files are left out; the last cell says which attachments and files are missing."""
    import nbformat

    messages = list(visible_messages(transcript, branch, left_out))
    results = _results(messages)
    cells = [cell for at, message in enumerate(messages) for cell in _cells(at, message, results, left_out)]
    cells += [_cell("missing", "markdown", missing)] if (missing := _describe_missing(transcript, messages)) else []
    if media := sum(len(message.media) for message in messages):
        left_out["media"] = media
    notebook = nbformat.from_dict(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": _metadata(transcript.session.title), "cells": cells}
    )
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook)
    return text.encode()


def _describe_missing(transcript: Transcript, messages: Sequence[Message]) -> str:
    """Return a text about what the user attached and about the files of the session, which the notebook cannot contain;
    empty if there is neither. The figures of the code are not mentioned, because running the code makes them."""
    attached = sum(len(message.media) for message in messages if message.role == "user")
    parts = [
        f"the pictures and videos that were attached to messages ({attached})" if attached else "",
        f"the files of the conversation: {', '.join(code_span(file.name) for file in transcript.files)}"
        if transcript.files
        else "",
    ]
    missing = " or ".join(filter(None, parts))
    return f"This notebook does not contain {missing}." if missing else ""


def _metadata(title: str) -> dict[str, Any]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    known = title.encode("utf-8", "replace").decode()
    return {"kernelspec": kernel, "language_info": {"name": "python"}, "title": known}


def _results(messages: Sequence[Message]) -> dict[tuple[int, str], Message]:
    """Return the results by (index of the message with the call, call id). The call id alone is not unique, since ids
    repeat in every round."""
    results: dict[tuple[int, str], Message] = {}
    call_at = 0
    for at, message in enumerate(messages):
        if message.calls:
            call_at = at
        if message.role == "tool" and message.call_id:
            results[call_at, message.call_id] = message
    return results


def _cells(
    at: int, message: Message, results: Mapping[tuple[int, str], Message], left_out: dict[str, int]
) -> Iterator[dict[str, Any]]:
    if message.role == "user" and message.text.strip():
        yield _cell(f"said-{at}", "markdown", "\n".join(prose(message.text)))
    for number, call in enumerate(message.calls):
        code = call.arguments.get("code")
        if call.name != "python" or not isinstance(code, str):
            left_out["calls of other tools"] = left_out.get("calls of other tools", 0) + 1
            continue
        yield _code_cell(f"code-{at}-{number}", code, results.get((at, call.id)))


def _code_cell(id: str, code: str, result: Message | None) -> dict[str, Any]:
    cell = _cell(id, "code", code) | {"outputs": [], "execution_count": None}
    if result is not None and result.text:
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": _utf8(result.text)}]
    if result is None or result.status != "success":
        cell["metadata"] = {"tags": ["raises-exception"]}
    return cell


def _cell(id: str, kind: str, source: str) -> dict[str, Any]:
    return {"id": id, "cell_type": kind, "metadata": {}, "source": _utf8(source)}


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
