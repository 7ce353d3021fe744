"""Implements ``%agent freeze``, which writes a copy of this notebook that runs without this package."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.python_syntax import to_plain_python
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandGroup, session_path
from agent_kernel.notebook.magic.embedded_server import front_end_notebook
from agent_kernel.notebook.magic.notebook_freezer import FrozenNotebook, FrozenTurn, freeze_notebook
from agent_kernel.notebook.magic.written_file import write_file
from agent_kernel.notebook.server_client import quote_segment

HELP = (
    "[NOTEBOOK] [--in-place] [--yes]: the code that ran as plain cells, in NAME.frozen.ipynb; --in-place: in the file "
    "itself, after a backup"
)
AT_ONCE = 100
OPEN = (
    "{name} is open in the browser, and its file must not change meanwhile. Leave out --in-place to write {frozen}, or "
    "close the page and freeze it from a console of this kernel."
)
NOT_OURS = (
    "{path} is not the notebook of this kernel: it may be open elsewhere, and its answers are not in this "
    "conversation. Leave out --in-place to write {frozen}."
)
OTHER = " It is not the notebook of this kernel: only cells that ran in this conversation have an answer."
PYTHON = ("python", "run_cell")


class FreezeCommand(CommandGroup):
    """Freezes the notebook of this kernel, or a notebook whose path the user gives."""

    def freeze(self, line: str) -> None:
        """Freeze the notebook as it was last saved. An existing file is replaced only with --yes."""
        arguments = CommandArguments(line, extra_flags=("--in-place",))
        in_place, replace = "--in-place" in arguments.flags, "--yes" in arguments.flags
        binding = self._context.server.call("GET", "binding")
        path = self._file(arguments.text, binding)
        frozen_path = path.with_suffix(".frozen.ipynb")
        is_ours = self._is_ours(path, binding)
        if in_place and not is_ours:
            raise AgentError(NOT_OURS.format(path=path.absolute(), frozen=frozen_path.name))
        if in_place and binding.get("open"):
            raise AgentError(OPEN.format(name=path.name, frozen=frozen_path.name))
        frozen = freeze_notebook(_read(path), list(self._turns()), partial(to_plain_python, self._context.shell))
        backup_note = ""
        if in_place:
            backup = path.with_suffix(".before-freeze.ipynb")
            write_file(backup, path.read_bytes(), notebook=path, replace=replace)
            backup_note = f" The original is in {backup.name}."
        text = json.dumps(frozen.document, ensure_ascii=False, indent=1) + "\n"
        target = path if in_place else frozen_path
        data = text.encode("utf-8", "surrogatepass")
        write_file(target, data, notebook=path, replace=in_place or replace)
        self._print_line(f"Wrote {target}: {_describe(frozen)}.{backup_note}{'' if is_ours else OTHER}")

    def _file(self, path_text: str, binding: Mapping[str, Any]) -> Path:
        path = Path(path_text).expanduser() if path_text else self._find_own_notebook(binding)
        if path is None:
            raise AgentError("this kernel has no notebook; give its path: %agent freeze NOTEBOOK.ipynb.")
        if not path.is_file():
            raise AgentError(f"{path.absolute()} does not exist; give the path of the notebook: %agent freeze PATH.")
        return path

    def _find_own_notebook(self, binding: Mapping[str, Any]) -> Path | None:
        """Return the path of this kernel's notebook, or None if it is unknown. ``binding`` has the notebook's name.

        Front ends such as VS Code send the path. Jupyter does not send it, but starts a kernel in the notebook's
        folder. The kernel's directory at its start is used, because code may change the current directory later."""
        name = PurePosixPath(binding["notebook"] or "").name
        path = front_end_notebook(self._context.shell)
        if path and path.name == name:
            return path
        return Path(os.path.relpath(Path(self._context.shell.starting_dir, name))) if name else None

    def _is_ours(self, path: Path, binding: Mapping[str, Any]) -> bool:
        own = self._find_own_notebook(binding)
        return own is not None and own.is_file() and own.samefile(path)

    def _turns(self) -> Iterator[FrozenTurn]:
        """Yield the turns of the current branch, oldest first."""
        path = f"{session_path(self._context.require_session(), 'turns')}?limit={AT_ONCE}"
        pages: list[list[Mapping[str, Any]]] = []
        before = ""
        while True:
            answer = self._context.server.call("GET", path + before)
            pages.append(answer["turns"])
            if not answer["older"] or not answer["turns"]:
                break
            before = f"&before={quote_segment(answer['turns'][0]['turn'])}"
        for page in reversed(pages):
            yield from (_turn(turn) for turn in page if turn["state"] != "failed")


def _turn(turn: Mapping[str, Any]) -> FrozenTurn:
    called: dict[str, tuple[str, str]] = {}
    ran: list[tuple[str, str]] = []
    answer = ""
    for event in turn["events"]:
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
    return FrozenTurn(str(turn["cell"]), str(turn["prompt"]), answer, tuple(ran))


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AgentError(f"{path} cannot be read as a notebook: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise AgentError(f"{path} is not a notebook in nbformat 4. Open and save it in Jupyter, which converts it.")
    return document


def _describe(frozen: FrozenNotebook) -> str:
    turns = f"{frozen.turns} turn{'s' * (frozen.turns != 1)} as text"
    cells = f"{frozen.cells} plain cell{'s' * (frozen.cells != 1)}"
    left = f"; {frozen.unknown} agent cell(s) had no answer on this branch and are text now" if frozen.unknown else ""
    bound = f"; {frozen.bound} cell(s) still import agent_kernel and need it" if frozen.bound else ""
    return f"{turns} and {cells}{left}{bound}"
