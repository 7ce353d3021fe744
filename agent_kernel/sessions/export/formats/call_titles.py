"""Titles of tool calls and their results for people who read an exported conversation, with the words of the panel. A
tool that is not known here is shown by its own name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agent_kernel.core.messages import Message, ToolCall, without_image_notes

TARGET_CHARS = 200
TITLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "python": ("Run Python",),
        "reset_python": ("Restart Python",),
        "run_cell": ("Run cell", "cell"),
        "run_cells": ("Run cells", "cells"),
        "running": ("Look at running code", "job"),
        "shell": ("Run in the shell", "commands"),
        "insert_cell": ("Insert cell",),
        "edit_cell": ("Edit cell", "cell"),
        "delete_cell": ("Delete cell", "cell"),
        "move_cell": ("Move cell", "cell"),
        "notebook_cells": ("List cells",),
        "read_cells": ("Read cells", "cells"),
        "variables": ("Look at variables", "name"),
        "last_error": ("Read the last error",),
        "recall": ("Search earlier conversations", "words", "turn"),
        "list_files": ("List files",),
        "read_file": ("Read file", "path", "file_id"),
        "surface_outputs": ("Show files", "outputs", "names"),
        "read_skill": ("Read skill", "name", "skill"),
        "web_search": ("Search the web", "query"),
        "fetch_page": ("Read page", "url"),
    }
)
"""For each tool: its title, and the arguments that may name its target. The first of them that a call has is used."""
STATUS = MappingProxyType(
    {"error": "failed", "denied": "denied", "timeout": "took too long", "interrupted": "stopped", "success": ""}
)


def call_title(call: ToolCall) -> str:
    """Return what a call does, such as "Read file data.csv"."""
    title, *names = TITLES.get(call.name, (call.name,))
    target = next((text for name in names if (text := _first_line(call.arguments.get(name)))), "")
    return f"{title} {target}".rstrip()


def result_title(message: Message) -> str:
    """Return the title of a call's result, with its status if the call did not succeed."""
    name = message.name or ""
    title, *_ = TITLES.get(name, (name or "Tool",))
    status = STATUS.get(message.status or "success", message.status)
    return f"{title}: result{f' ({status})' if status else ''}"


def result_text(message: Message) -> str:
    """Return the text of a result without the notes for the model about images, which the reader sees."""
    return without_image_notes(message.text) if message.media else message.text


def _first_line(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value) if value is not None else ""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:TARGET_CHARS]
