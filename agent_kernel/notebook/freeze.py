"""``%agent freeze``: this notebook for somebody who does not have this package."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from agent_kernel.notebook.client import Server, quoted
from agent_kernel.notebook.conversation import Say, Words
from agent_kernel.notebook.frozen import Frozen, Turn, frozen
from agent_kernel.notebook.oneline import AgentError
from agent_kernel.notebook.render import line_bundle

HELP = (
    "[NOTEBOOK] [--in-place] [--yes]: the code that ran as plain cells, in NAME.frozen.ipynb; --in-place: in the file "
    "itself, after a backup"
)
AT_ONCE = 100
OPEN = (
    "{name} is open in a page, and nothing writes the file behind it. Without --in-place it becomes {frozen}; or close "
    "the page and freeze it from a console of this kernel."
)
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
        target = path if in_place else path.with_suffix(".frozen.ipynb")
        if in_place and binding.get("open"):
            raise AgentError(OPEN.format(name=path.name, frozen=path.with_suffix(".frozen.ipynb").name))
        made = frozen(_read(path), list(self._turns()), self._shell.transform_cell)
        kept = ""
        if in_place:
            backup = path.with_suffix(".before-freeze.ipynb")
            _write(backup, path.read_bytes(), over="--yes" in words.flags)
            kept = f" As it was, it is in {backup.name}."
        text = json.dumps(made.document, ensure_ascii=False, indent=1) + "\n"
        _write(target, text.encode("utf-8", "surrogatepass"), over=in_place or "--yes" in words.flags)
        self._say(line_bundle(f"Wrote {target}: {_told(made)}.{kept}"))

    def _file(self, named: str, binding: Mapping[str, Any]) -> Path:
        """Of this notebook: Jupyter begins a kernel in its folder."""
        name = named or PurePosixPath(binding["notebook"] or "").name
        if not name:
            raise AgentError("this kernel has no notebook; %agent freeze NOTEBOOK.ipynb names one.")
        path = Path(name).expanduser()
        if not path.is_file():
            raise AgentError(f"{path.absolute()} is not there; %agent freeze PATH says where the notebook lies.")
        return path

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


def _write(path: Path, data: bytes, *, over: bool) -> None:
    """Whole or not at all."""
    if path.exists() and not over:
        raise AgentError(f"{path} is there already; --yes replaces it.")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise AgentError(f"{path} can not be written: {error.strerror}.") from None


def _told(made: Frozen) -> str:
    turns = f"{made.turns} turn{'s' * (made.turns != 1)} as text and {made.cells} plain cell{'s' * (made.cells != 1)}"
    left = f"; {made.unknown} agent cell(s) had no answer on this branch and are text now" if made.unknown else ""
    bound = f"; {made.bound} cell(s) still import agent_kernel and need it" if made.bound else ""
    return f"{turns}{left}{bound}"
