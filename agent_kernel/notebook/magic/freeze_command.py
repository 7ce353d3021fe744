"""``%agent freeze``: this notebook for somebody who does not have this package."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from agent_kernel.notebook.display.render import line_bundle
from agent_kernel.notebook.kernel.changed_names import plain
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic.conversation_commands import Say, Words
from agent_kernel.notebook.magic.embedded_server import told_by_front_end
from agent_kernel.notebook.magic.notebook_freezer import Frozen, Turn, frozen
from agent_kernel.notebook.server_client import Server, quoted

HELP = (
    "[NOTEBOOK] [--in-place] [--yes]: the code that ran as plain cells, in NAME.frozen.ipynb; --in-place: in the file "
    "itself, after a backup"
)
AT_ONCE = 100
OPEN = (
    "{name} is open in a page, and nothing writes the file behind it. Without --in-place it becomes {frozen}; or close "
    "the page and freeze it from a console of this kernel."
)
NOT_OURS = (
    "{path} is not the notebook of this kernel, so nobody knows whether it is open, and its answers are not in this "
    "conversation. Without --in-place it becomes {frozen}."
)
OTHER = " It is not the notebook of this kernel: only cells that were asked in this conversation have an answer."
PYTHON = ("python", "run_cell")


class Freeze:
    """``bound`` is the session of this notebook; raises AgentError when there is none."""

    def __init__(
        self, shell: Any, server: Callable[[], Server], bound: Callable[[], Mapping[str, Any]], say: Say
    ) -> None:
        self._shell = shell
        self._server = server
        self._bound = bound
        self._say = say

    def freeze(self, rest: str) -> None:
        """Of the file as it was saved last. Never over a file that is there, unless --yes says so."""
        in_place = "--in-place" in rest.split()
        words = Words(" ".join(word for word in rest.split() if word != "--in-place"))
        binding = self._server().call("GET", "binding")
        path = self._file(words.text, binding)
        frozen_path = path.with_suffix(".frozen.ipynb")
        is_ours = self._is_ours(path, binding)
        if in_place and not is_ours:
            raise AgentError(NOT_OURS.format(path=path.absolute(), frozen=frozen_path.name))
        if in_place and binding.get("open"):
            raise AgentError(OPEN.format(name=path.name, frozen=frozen_path.name))
        made = frozen(_read(path), list(self._turns()), partial(plain, self._shell))
        kept = ""
        if in_place:
            backup = path.with_suffix(".before-freeze.ipynb")
            _write(backup, path.read_bytes(), like=path, over="--yes" in words.flags)
            kept = f" As it was, it is in {backup.name}."
        text = json.dumps(made.document, ensure_ascii=False, indent=1) + "\n"
        target = path if in_place else frozen_path
        data = text.encode("utf-8", "surrogatepass")
        _write(target, data, like=path, over=in_place or "--yes" in words.flags)
        self._say(line_bundle(f"Wrote {target}: {_told(made)}.{kept}{'' if is_ours else OTHER}"))

    def _file(self, named: str, binding: Mapping[str, Any]) -> Path:
        path = Path(named).expanduser() if named else self._own(binding)
        if path is None:
            raise AgentError("this kernel has no notebook; %agent freeze NOTEBOOK.ipynb names one.")
        if not path.is_file():
            raise AgentError(f"{path.absolute()} is not there; %agent freeze PATH says where the notebook lies.")
        return path

    def _own(self, binding: Mapping[str, Any]) -> Path | None:
        """The notebook of this kernel: Jupyter begins a kernel in its folder, which code may leave; other front ends
        tell it."""
        name = PurePosixPath(binding["notebook"] or "").name
        told = told_by_front_end(self._shell)
        if told and told.name == name:
            return told
        return Path(os.path.relpath(Path(self._shell.starting_dir, name))) if name else None

    def _is_ours(self, path: Path, binding: Mapping[str, Any]) -> bool:
        own = self._own(binding)
        return own is not None and own.is_file() and own.samefile(path)

    def _turns(self) -> Iterator[Turn]:
        """Of the current branch, oldest first."""
        path = f"sessions/{quoted(str(self._bound()['id']))}/turns?limit={AT_ONCE}"
        pages: list[list[Mapping[str, Any]]] = []
        before = ""
        while True:
            answer = self._server().call("GET", path + before)
            pages.append(answer["turns"])
            if not answer["older"] or not answer["turns"]:
                break
            before = f"&before={quoted(answer['turns'][0]['turn'])}"
        for page in reversed(pages):
            yield from (_turn(told) for told in page if told["state"] != "failed")


def _turn(told: Mapping[str, Any]) -> Turn:
    called: dict[str, tuple[str, str]] = {}
    ran: list[tuple[str, str]] = []
    answer = ""
    for event in told["events"]:
        data = event["data"]
        match event["type"]:
            case "text.delta":
                answer += str(data["text"])
            case "call.started" if data["name"] in PYTHON and isinstance(data["arguments"].get("code"), str):
                called[data["call"]] = data["arguments"]["code"], str(data["where"])
                answer = ""
            case "call.started":
                answer = ""
            case "call.finished" if data["status"] == "success" and data["call"] in called:
                ran.append(called[data["call"]])
    return Turn(str(told["cell"]), str(told["prompt"]), answer, tuple(ran))


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AgentError(f"{path} can not be read as a notebook: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise AgentError(f"{path} is no notebook of format 4.")
    return document


def _write(path: Path, data: bytes, *, like: Path, over: bool) -> None:
    """Whole or not at all; where a link leads to. Who may read it: as before, of a new file as ``like``."""
    if path.exists() and not over:
        raise AgentError(f"{path} is there already; --yes replaces it.")
    real = path.resolve()
    beside = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        beside.touch(0o600)
        beside.write_bytes(data)
        shutil.copymode(real if real.exists() else like, beside)
        beside.replace(real)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise AgentError(f"{path} can not be written: {error.strerror}.") from None


def _told(made: Frozen) -> str:
    turns = f"{made.turns} turn{'s' * (made.turns != 1)} as text and {made.cells} plain cell{'s' * (made.cells != 1)}"
    left = f"; {made.unknown} agent cell(s) had no answer on this branch and are text now" if made.unknown else ""
    bound = f"; {made.bound} cell(s) still import agent_kernel and need it" if made.bound else ""
    return f"{turns}{left}{bound}"
