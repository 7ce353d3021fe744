"""Finds the configuration files of Jupyter that contain settings of agent-kernel. The commands in a terminal read
environment variables only, so a command that shows settings says which files it leaves out."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from agent_kernel.cli.base.output import printable
from agent_kernel.cli.base.word_wrap import print_message
from agent_kernel.core.setting_declaration import variable
from agent_kernel.core.settings import Settings

CLASS = "AgentKernel"
IN_CODE = re.compile(rf"^[^#\n]*\b{CLASS}\b[^#\n]*", re.MULTILINE)
"""Matches a line of Python that names the class, unless it is a comment, as the lines of a generated file are."""
ATTRIBUTE = re.compile(rf"\b{CLASS}\.(\w+)")
PLACE_SETTINGS = ("data_dir", "store")
"""Settings that determine where the data of a server is."""
PATTERNS = ("jupyter*config.py", "jupyter*config.json", "jupyter*config.d/*.json")


def report_files_left_out() -> None:
    """Print a line to stderr that names the files, if there are any."""
    if files := find_files():
        names = printable(", ".join(map(str, files)))
        print_message(
            f"agent-kernel: the settings c.{CLASS} in {names} are for the Jupyter server. This command does not use "
            "them and does not show them."
        )


def report_other_place(settings: Settings) -> None:
    """Print a line to stderr that names the files which set where the data of the server is, if there are any and no
    environment variable sets it."""
    wanted = [name for name in PLACE_SETTINGS if not os.environ.get(variable(name))]
    found = {path: names for path in find_files() if (names := [name for name in wanted if name in _names_in(path)])}
    if not found:
        return
    files = printable(", ".join(map(str, found)))
    names = [name for name in wanted if any(name in set_there for set_there in found.values())]
    print_message(
        f"agent-kernel: {files} sets {', '.join(names)} for the Jupyter server. This command does not use that: it "
        f"reads {printable(str(settings.data_dir))} (store: {settings.store_name}). To read the data of the server, "
        f"set {' and '.join(map(variable, names))} to the same."
    )


def find_files() -> list[Path]:
    """Return the files in the directories where Jupyter looks for its configuration, including the current one, that
    contain settings of agent-kernel. A Python file is not run but searched for the name of the class."""
    import jupyter_core.paths

    folders = dict.fromkeys(Path(folder).absolute() for folder in (".", *jupyter_core.paths.jupyter_config_path()))
    candidates = (path for folder in folders for pattern in PATTERNS for path in sorted(folder.glob(pattern)))
    return [path for path in candidates if _names_in(path)]


def _names_in(path: Path) -> frozenset[str]:
    """Return what a file names of the class: the settings that it contains; in Python code also other attributes."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            return frozenset(name for line in IN_CODE.findall(text) for name in ATTRIBUTE.findall(line) or [CLASS])
        content = json.loads(text)
    except (OSError, ValueError):  # a file that Jupyter cannot read either
        return frozenset()
    values = content.get(CLASS) if isinstance(content, dict) else None
    return frozenset(values) if isinstance(values, dict) else frozenset()
