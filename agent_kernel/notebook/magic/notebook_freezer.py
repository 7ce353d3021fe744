"""Converts a notebook to one without agent cells: prompts and answers become text, executed code becomes plain cells.
``freeze_notebook`` has no side effects: it returns a new document, which runs without this package.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_kernel.core.programs.syntax_tree import parse_or_empty
from agent_kernel.core.wire.agent_cells import KERNELSPEC, MAGIC, is_agent_cell, prompt_of
from agent_kernel.notebook.display.render import BOX, QUIET, TURN_MIME
from agent_kernel.notebook.display.safe_markdown import code_block, safe_markdown
from agent_kernel.notebook.display.terminal_escape import printable
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.program_value import with_assignment
from agent_kernel.notebook.turn.cell_options import CellOptions, ResultVariable, parse_options
from agent_kernel.notebook.turn.result_assignment import COMPUTED
from agent_kernel.sandbox.worker.missing_imports import missing_imports

LINE = re.compile(r"^(?P<indent>[ \t]*)(?P<line>%agent\b.*|%(?:re)?load_ext[ \t]+agent_kernel\b.*)$", re.MULTILINE)
ASKS = re.compile(r"^[ \t]*%agent[ \t]+(?:ask|fix)\b", re.MULTILINE)
ASK = re.compile(r"[ \t]*%agent[ \t]+ask\b")
NEEDS_US = re.compile(r"^[ \t]*(?:import|from)[ \t]+(?:agent_kernel|jupyter_ext)\b", re.MULTILINE)
PLACES = {"sandbox": "# Ran in the sandbox, on copies of the variables.", "draft": "# Ran in a draft of the kernel."}
AROUND = (f"<details style='{BOX}'", f"<details open style='{BOX}'", f"<div style='{QUIET}'")
WITHOUT_CELL = "Asked in the panel, or in cells that are not in this notebook any more:"

NOT_SET = "# {name} was set by the agent; its value is not in this notebook."

Json = dict[str, Any]


class FrozenTurn(NamedTuple):
    """The stored parts of a turn. ``ran`` lists (code, where) of its successful Python calls."""

    cell: str
    prompt: str
    answer: str
    ran: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class FrozenNotebook:
    """The frozen document, and the counts of some of its cells. ``unknown`` counts the agent cells without a stored
    turn; these cells become text. ``bound`` counts the cells that import this package and therefore run only where it
    is installed. ``names`` are the variables that the cells added so far assign."""

    document: Json
    transformed: Callable[[str], str]
    turns: int = 0
    cells: int = 0
    unknown: int = 0
    bound: int = 0
    names: set[str] = field(default_factory=set)

    def add_cells(self, document: Mapping[str, Any], turns: Sequence[FrozenTurn]) -> None:
        """Add every cell of the original document. After them, add the code of turns that belong to no cell of the
        document."""
        by_cell, cells = _group_by_cell(turns), self.document["cells"]
        met: set[str] = set()
        for cell in document.get("cells", ()):
            source, id = _join_source(cell.get("source")), str(cell.get("id", ""))
            metadata = cell.get("metadata")
            if cell.get("cell_type") != "code" or not is_agent_cell(source, metadata):
                line_turns = list(by_cell.get(id, {}).values()) if ASKS.search(source) else []
                met |= {turn.cell for turn in line_turns}
                cells.append(self._plain_cell(_without_turn_outputs(cell, line_turns), source))
                texts = [output for output in cell.get("outputs", ()) if not _is_picture(output)]
                cells += [new_cell for turn in line_turns for new_cell in self._turn_cells(turn, texts, source)]
            elif turn := by_cell.get(id, {}).get(id):
                met.add(turn.cell)
                cells += self._turn_cells(turn, cell.get("outputs", ()), source)
            else:
                prompt = prompt_of(source, metadata)
                cells += self._unknown_cells(cell.get("outputs", ()), source if prompt is None else prompt)
        rest = [turn for turn in turns if turn.ran and turn.cell not in met]
        cells += [_text(WITHOUT_CELL)] if rest else []
        cells += [new_cell for turn in rest for new_cell in self._turn_cells(turn, (), "")]

    def _turn_cells(self, turn: FrozenTurn, outputs: Sequence[Any], source: str) -> list[Json]:
        """Return the cells for the prompt, the code and the answer of a turn. Pictures among the outputs of the agent
        cell move to the last code cell."""
        self.turns += 1
        ran = _with_result(turn.ran, turn, source, outputs)
        new_cells = [_text(_quote(turn.prompt)), *(self._code_cell(code, where) for code, where in ran)]
        if ran:
            new_cells[-1]["outputs"] = [output for output in outputs if _is_picture(output)]
        return [*new_cells, _text(safe_markdown(turn.answer))] if turn.answer.strip() else new_cells

    def _code_cell(self, code: str, where: str) -> Json:
        plain = self.transformed(code)
        imports = missing_imports(plain, dict.fromkeys(self.names))
        self.names |= _bound_names("\n".join([*imports, plain]))
        self.cells += 1
        lines = [*([PLACES[where]] if where in PLACES else []), *imports, code]
        empty: Json = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        return {**empty, "source": "\n".join(lines)}

    def _plain_cell(self, cell: Mapping[str, Any], source: str) -> Json:
        """Copy a cell that does not call the agent. Lines that need this package become comments."""
        copied = copy.deepcopy(dict(cell))
        if copied.get("cell_type") == "code":
            copied["source"] = LINE.sub(_comment, source)
            self.bound += bool(NEEDS_US.search(source))
            self.names |= _bound_names(self.transformed(str(copied["source"])))
        return copied

    def _unknown_cells(self, outputs: Sequence[Any], prompt: str) -> list[Json]:
        """Convert an agent cell without a stored turn to text cells: its prompt and the text that it displays."""
        self.unknown += 1
        texts = [text for output in outputs if not _is_around(output) and (text := _output_markdown(output))]
        return [_text(_quote(prompt)), *([_text("\n\n".join(texts))] if texts else [])]


def freeze_notebook(
    document: Mapping[str, Any], turns: Sequence[FrozenTurn], transformed: Callable[[str], str]
) -> FrozenNotebook:
    """Return the frozen copy of ``document``. If a cell has several turns, the newest one is used. ``transformed``
    converts IPython syntax to plain Python."""
    copied = copy.deepcopy(dict(document))
    _use_plain_kernel(copied)
    frozen = FrozenNotebook({**copied, "cells": []}, transformed)
    frozen.add_cells(document, turns)
    _with_ids(frozen.document["cells"], document)
    return frozen


def _use_plain_kernel(document: Json) -> None:
    """Replace the kernelspec of this package with that of ipykernel in the notebook's metadata."""
    metadata = document.get("metadata")
    spec = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    if isinstance(spec, dict) and spec.get("name") == KERNELSPEC:
        spec |= {"display_name": "Python 3", "language": "python", "name": "python3"}


def _group_by_cell(turns: Sequence[FrozenTurn]) -> dict[str, dict[str, FrozenTurn]]:
    """Map the id of each cell to its turns: a mapping from the cell id of the turn to the newest turn with this id. A
    cell with several ``%agent ask`` lines has several ids: ID, ID#2, ..."""
    by_cell: dict[str, dict[str, FrozenTurn]] = {}
    for turn in turns:
        if turn.cell:
            by_cell.setdefault(turn.cell.partition("#")[0], {})[turn.cell] = turn
    return by_cell


def _with_result(
    programs: Sequence[tuple[str, str]], turn: FrozenTurn, source: str, outputs: Sequence[Any]
) -> list[tuple[str, str]]:
    """Return the programs of a turn. If the cell sets a variable (``-> name: type``), this includes the code that sets
    it: the last program with an assignment if that program computed the value, else an assignment of the value in the
    answer."""
    variable = _result_of(source, turn.prompt)
    if variable is None:
        return list(programs)
    beginning = f"{variable.name}: {variable.type or 'str'} = "
    texts = [text for output in outputs if (text := _data(output).get("text/plain", "").strip()).startswith(beginning)]
    if outputs and not texts:
        return list(programs)  # the turn ended without a value of the type
    value = turn.answer if not variable.type else _value_of_answer(turn.answer)
    is_computed = texts[-1].endswith(COMPUTED) if texts else value is None
    if is_computed:
        last = with_assignment(programs[-1][0], variable.name) if programs else ""
        return (
            [*programs[:-1], (last, programs[-1][1])] if last else [*programs, (NOT_SET.format(name=variable.name), "")]
        )
    is_class = isinstance(value, dict) and variable.type.replace(".", "").isidentifier() and variable.type != "dict"
    text = f"{variable.type}(**{value!r})" if is_class else repr(value)
    return [*programs, (f"{variable.name} = {text}", "")]


def _result_of(source: str, prompt: str) -> ResultVariable | None:
    """Return the variable that the cell, or its ``%agent ask`` line with this prompt, sets."""
    if match := MAGIC.match(source):
        line = source[match.end() :].partition("\n")[0]
        return _options(line).result
    for line in source.splitlines():
        if match := ASK.match(line):
            options = _options(line[match.end() :])
            if options.words.strip("\"' ") == prompt.strip("\"' "):
                return options.result
    return None


def _options(line: str) -> CellOptions:
    try:
        return parse_options(line)
    except AgentError:
        return CellOptions()


def _value_of_answer(answer: str) -> Any:
    """Return the value in a constrained answer; None if there is none."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return value["value"] if isinstance(value, dict) and list(value) == ["value"] else value


def _comment(match: re.Match[str]) -> str:
    """Comment out the line. An indented line gets ``pass``, because it may be the only statement of its block."""
    return f"{match['indent']}{'pass  ' if match['indent'] else ''}# {match['line']}"


def _without_turn_outputs(cell: Mapping[str, Any], turns: Sequence[FrozenTurn]) -> Mapping[str, Any]:
    """Return a cell without those of its outputs that show ``turns``, the turns of its ``%agent ask`` lines. The frozen
    notebook contains these turns as text and code cells."""
    if not turns:
        return cell
    answers = {turn.answer.strip() for turn in turns if turn.answer.strip()}
    outputs = [output for output in cell.get("outputs", ()) if not (_is_around(output) or _answer(output) in answers)]
    return {**cell, "outputs": outputs}


def _output_markdown(output: Any) -> str:
    """Return the text of an output as Markdown, or "" for pictures and errors."""
    data = _data(output)
    if "text/markdown" in data:
        return safe_markdown(data["text/markdown"].strip())
    text = "" if _is_picture(output) else printable(data.get("text/plain", "")).strip("\n")
    return code_block(text) if text.strip() else ""


def _answer(output: Any) -> str:
    """Return the text of a display output, or "" for printed text and results."""
    is_shown = isinstance(output, Mapping) and output.get("output_type") == "display_data"
    return _data(output).get("text/plain", "").strip() if is_shown else ""


def _is_around(output: Any) -> bool:
    """Return whether an output of an agent cell is not part of the answer, but shows a tool call, a notice or the
    status line of the turn."""
    data = _data(output)
    return TURN_MIME in data or data.get("text/html", "").startswith(AROUND)


def _data(output: Any) -> dict[str, str]:
    """Return the texts of an output by MIME type; stream output counts as plain text."""
    if not isinstance(output, Mapping):
        return {}
    if output.get("output_type") == "stream":
        return {"text/plain": _join_source(output.get("text"))}
    data = output.get("data")
    return {str(mime): _join_source(text) for mime, text in data.items()} if isinstance(data, Mapping) else {}


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in safe_markdown(text).splitlines())


def _text(source: str) -> Json:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _is_picture(output: Any) -> bool:
    data = output.get("data") if isinstance(output, Mapping) else None
    return isinstance(data, Mapping) and any(str(mime).startswith("image/") for mime in data)


def _bound_names(code: str) -> set[str]:
    """Return the names that the code binds in any scope. They include names that only an inner scope binds, so the
    frozen notebook may lack an import that a later cell needs; its reader can add the import."""
    names: set[str] = set()
    for node in ast.walk(parse_or_empty(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.partition(".")[0])
    return names


def _join_source(source: Any) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _with_ids(cells: Sequence[Json], document: Mapping[str, Any]) -> None:
    """Give every cell an id for nbformat 4.5 or later; older formats do not allow ids."""
    has_ids = (document.get("nbformat", 4), document.get("nbformat_minor", 0)) >= (4, 5)
    for cell in cells:
        if has_ids:
            cell.setdefault("id", secrets.token_hex(4))
