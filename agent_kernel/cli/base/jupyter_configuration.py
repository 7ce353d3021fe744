"""Finds the configuration files of Jupyter that contain settings of agent-kernel. The commands in a terminal read
environment variables only, so a command that shows settings says which files it leaves out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from agent_kernel.cli.base.output import printable

CLASS = "AgentKernel"
IN_CODE = re.compile(rf"^[^#\n]*\b{CLASS}\b", re.MULTILINE)
"""Matches a line of Python that names the class, unless it is a comment, as the lines of a generated file are."""
PATTERNS = ("jupyter*config.py", "jupyter*config.json", "jupyter*config.d/*.json")


def report_files_left_out() -> None:
    """Print a line to stderr that names the files, if there are any."""
    if files := find_files():
        names = printable(", ".join(map(str, files)))
        print(
            f"agent-kernel: the settings c.{CLASS} in {names} are for the Jupyter server. This command does not use "
            "them and does not show them.",
            file=sys.stderr,
        )


def find_files() -> list[Path]:
    """Return the files in the directories where Jupyter looks for its configuration, including the current one, that
    contain settings of agent-kernel. A Python file is not run but searched for the name of the class."""
    import jupyter_core.paths

    folders = dict.fromkeys(Path(folder).absolute() for folder in (".", *jupyter_core.paths.jupyter_config_path()))
    candidates = (path for folder in folders for pattern in PATTERNS for path in sorted(folder.glob(pattern)))
    return [path for path in candidates if _has_settings(path)]


def _has_settings(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            return IN_CODE.search(text) is not None
        content = json.loads(text)
    except (OSError, ValueError):  # a file that Jupyter cannot read either
        return False
    return isinstance(content, dict) and bool(content.get(CLASS))
