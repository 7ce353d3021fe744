"""Decides which cells are for the agent, and extracts the prompt of such a cell.

A cell is for the agent if it is a ``%%agent`` cell or a prompt cell. A prompt cell begins with ``>``, or its metadata
state that the user switched it to "Ask". Only kernels of the kernelspec "Agent prompts (Python)" run prompt cells as
turns; to other kernels ``>`` is a syntax error, so code is never mistaken for a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

KERNELSPEC = "agent-python"
"""The name of the kernelspec "Agent prompts (Python)"."""
METADATA_KEY = "agent_kernel"
"""The key of this package in the metadata of cells and outputs."""
MAGIC = re.compile(r"\s*%%agent\b")
# A line that begins with >>> is a pasted Python session, which IPython runs as Python.
MARK = re.compile(r"\s*>(?!>>)")
LINE_MARK = re.compile(r"^[ \t]*>(?!>>)[ \t]?", re.MULTILINE)
COMMAND = "%agent"


def prompt_of(source: str, metadata: object = None) -> str | None:
    """Return the prompt of a prompt cell, or None for every other cell.

    The prompt is the text after ``>`` on every line; a line without ``>`` is included unchanged. ``metadata`` is the
    cell's metadata as a client sent it, and may be malformed.
    """
    if MARK.match(source):
        return LINE_MARK.sub("", source)
    return source if _is_switched_to_ask(metadata) and not MAGIC.match(source) else None


def is_agent_cell(source: str, metadata: object = None) -> bool:
    """Return whether running the cell starts a turn. The arguments are those of ``prompt_of``."""
    return bool(MAGIC.match(source)) or prompt_of(source, metadata) is not None


def is_agent_code(source: str, metadata: object = None) -> bool:
    """Return whether the cell starts a turn or begins with an ``%agent`` command, so that it is not code of the user.
    The arguments are those of ``prompt_of``."""
    return source.lstrip().startswith(COMMAND) or is_agent_cell(source, metadata)


def _is_switched_to_ask(metadata: object) -> bool:
    own = metadata.get(METADATA_KEY) if isinstance(metadata, Mapping) else None
    return isinstance(own, Mapping) and own.get("ask") is True
