"""Builds the requests of ``%agent fix``, ``explain`` and ``improve``, which are about a cell that ran.

Where the kernel can be copied, a corrected or improved cell runs in a draft, which is a copy of the kernel in its
present state. A corrected cell is proposed only if it ran without an error and does not hide the error. An improved
cell is proposed only if its effects equal those of the original cell. To explain a cell, no code runs.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import keyword
import re
import symtable
import types
from typing import Any, NamedTuple

from agent_kernel.core.programs.syntax_tree import UNPARSABLE, parse_or_empty
from agent_kernel.core.wire.agent_cells import is_agent_code
from agent_kernel.notebook.display.render import Bundle
from agent_kernel.notebook.display.safe_markdown import code_block
from agent_kernel.notebook.draft.draft import NO_REVIEW, ProgramReview
from agent_kernel.notebook.kernel import inspection
from agent_kernel.notebook.kernel.hidden_errors import find_hidden_error
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.python_syntax import (
    loop_names,
    smallest_statement,
    to_plain_python,
)
from agent_kernel.notebook.kernel.variable_summary import summary
from agent_kernel.notebook.turn.execution_history import ExecutionHistory

CHARS = 6_000
"""Limit in characters for source and traceback together. Of longer texts, the beginning and the end are kept."""
FIX = "Correct the cell In[{number}], which failed with {error}. Give the whole cell as it should be."
EXPLAIN = "Explain in plain words what the cell In[{number}] does."
EXPLAIN_FAILED = "Explain in plain words what the cell In[{number}] does and why it failed with {error}."
IMPROVE = "Write the cell In[{number}] better, clearer or faster. It prints the same and makes equal variables."
MAKES = " It makes {names}."
NOT_TRIED = "The proposed cell was not tried in a draft. Read it before you run it."
NONE_RAN = "No corrected cell ran without an error, so none is proposed. To tell the model more: %agent fix WORDS."
NONE_BETTER = "No other cell was found that prints the same and leaves equal variables, so none is proposed."
NO_DRAFT = "%agent improve compares a new cell with yours in a draft, and no draft can be made here: {reason}."
SAME_CODE = "SameCode: this is the code of the cell, unchanged."
SAME = "The model wrote the same code that failed, so no cell is proposed. To tell the model more: %agent fix WORDS."
MAX_NAMES = 8
CHOSEN = re.compile(r"In\[(\d+)\]\s*")
NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
FRAME = re.compile(r"^  In\[(\d+)\], line (\d+), in ", re.MULTILINE)
MISSING = re.compile(r"^NameError: name '(\w+)' is not defined", re.MULTILINE)


class CellTask(NamedTuple):
    """A request about a cell: the prompt and ``notes`` for the model. ``form`` is the format of the answer. ``source``
    is the code of the cell that a proposed cell replaces; empty if no cell is to be proposed. ``review`` decides which
    code may be proposed, and ``none`` is the line that the user reads if no code may be proposed."""

    prompt: str
    notes: tuple[dict[str, str], ...]
    form: str
    source: str = ""
    review: ProgramReview = NO_REVIEW
    none: str = ""


def build_fix_request(shell: Any, executions: ExecutionHistory, words: str) -> CellTask:
    """Build the request to correct the cell that failed last, or the failed cell In[N] if ``words`` begin with
    ``In[N]``. The remaining words are added to the prompt. Raises AgentError if no such cell has failed since the
    kernel started."""
    chosen = CHOSEN.match(words)
    failure = executions.failures.get(int(chosen[1])) if chosen else executions.failure
    if failure is None:
        missing = f"the cell {chosen[0].strip()} is not among the last that failed" if chosen else "no cell has failed"
        raise AgentError(f"{missing} since this kernel was started; run the one that fails, then ask again.")
    number, _, source, traceback = failure
    prompt = FIX.format(number=number, error=_error_line(traceback))
    new_names = [name for name in _bound_names(shell, source) if name not in shell.user_ns]
    prompt = _prompt(prompt, new_names, words[chosen.end() :] if chosen else words)
    review = ProgramReview(lambda code: _refuse_fix(shell, number, source, traceback, code))
    return CellTask(prompt, _failure_notes(shell, failure), "fix", source, review, NONE_RAN)


def build_explain_request(shell: Any, executions: ExecutionHistory, words: str) -> CellTask:
    """Build the request to explain the last cell, and its error if it failed. Raises AgentError when no cell ran."""
    number, source = _last_cell(shell, executions)
    failure = executions.failure
    if failure is not None and failure[0] == number:
        prompt = EXPLAIN_FAILED.format(number=number, error=_error_line(failure[3]))
        notes = _failure_notes(shell, failure)
    else:
        prompt = EXPLAIN.format(number=number)
        notes = _cell_notes(shell, executions, number, source)
    return CellTask(_prompt(prompt, [], words), notes, "explain")


def build_improve_request(shell: Any, executions: ExecutionHistory, words: str) -> CellTask:
    """Build the request for a better version of the last cell. Raises AgentError when no cell ran or the last cell
    failed."""
    number, source = _last_cell(shell, executions)
    if executions.of(number)[1]:
        raise AgentError(f"the cell In[{number}] failed; %agent fix corrects it.")
    prompt = _prompt(IMPROVE.format(number=number), _bound_names(shell, source), words)
    review = ProgramReview(lambda code: SAME_CODE if is_same_code(shell, code, source) else "", source)
    notes = _cell_notes(shell, executions, number, source)
    return CellTask(prompt, notes, "fix", source, review, NONE_BETTER)


def _error_line(traceback: str) -> str:
    last_line = traceback.strip().splitlines()[-1] if traceback.strip() else "an error"
    return last_line if len(last_line) <= 200 else f"{last_line[:200]} ..."


def _prompt(prompt: str, parts: list[str], words: str) -> str:
    makes = MAKES.format(names=", ".join(parts[:MAX_NAMES])) if parts else ""
    return prompt + makes + (f"\n{words}" if words else "")


def _failure_notes(shell: Any, failure: tuple[int, str, str, str]) -> tuple[dict[str, str], ...]:
    return (
        {"title": "The cell that failed", "text": inspection.describe_failure(failure, CHARS)},
        *_variable_notes(shell, _names_that_matter(shell, failure[3])),
    )


def _cell_notes(shell: Any, executions: ExecutionHistory, number: int, source: str) -> tuple[dict[str, str], ...]:
    text = inspection.executions(shell, executions, (number,), CHARS)
    known = _known_names(shell)
    used = dict.fromkeys(name for name in NAME.findall(source) if name in known)
    return ({"title": "The cell", "text": text}, *_variable_notes(shell, list(used)[:MAX_NAMES]))


def _variable_notes(shell: Any, names: list[str]) -> tuple[dict[str, str], ...]:
    facts = [summary(name, shell.user_ns[name]) for name in names]
    return ({"title": "Variables", "text": "\n".join(facts)},) if facts else ()


def _last_cell(shell: Any, executions: ExecutionHistory) -> tuple[int, str]:
    """Return (number, source) of the last cell that is not a command of the agent. Raises AgentError if there is
    none."""
    sources: list[str] = list(shell.history_manager.input_hist_raw)
    for number in range(len(sources) - 1, 0, -1):
        is_prompt = executions.is_prompt(number) or is_agent_code(sources[number])
        if sources[number].strip() and not is_prompt:
            return number, sources[number]
    raise AgentError("no cell has run since this kernel was started; run one, then ask again.")


def _refuse_fix(shell: Any, number: int, source: str, traceback: str, code: str) -> str:
    """Return why ``code`` is not a correction of the failed cell number ``number``, or "" if it is."""
    lines = [int(line) for cell, line in FRAME.findall(traceback) if int(cell) == number]
    error = _error_line(traceback).partition(":")[0].strip()
    return find_hidden_error(to_plain_python(shell, source), lines, error, to_plain_python(shell, code))


def diff_bundle(failed: str, proposed: str) -> Bundle:
    """Return the difference between the failed cell and the proposed cell as a MIME bundle."""
    lines = difflib.unified_diff(failed.splitlines(), proposed.splitlines(), n=100, lineterm="")
    text = "\n".join(itertools.islice(lines, 3, None))  # the first lines are headers with file names
    return {"text/markdown": code_block(text, "diff"), "text/plain": text}


def is_same_code(shell: Any, cell: str, other_cell: str) -> bool:
    """Return whether the cells ``cell`` and ``other_cell`` have the same code. Comments, blank lines and layout are
    ignored."""
    try:
        first, second = (ast.dump(ast.parse(to_plain_python(shell, code))) for code in (cell, other_cell))
    except UNPARSABLE:
        return cell.split() == other_cell.split()
    return first == second


def _bound_names(shell: Any, source: str) -> list[str]:
    """Return the names that the top level of the cell assigns or defines, in order, without imports and loop
    variables."""
    code = to_plain_python(shell, source)
    try:
        symbols = symtable.symtable(code, "cell", "exec").get_symbols()
    except UNPARSABLE:
        return []
    loops = loop_names(code)
    bound = [symbol.get_name() for symbol in symbols if symbol.is_assigned() and not symbol.is_imported()]
    return [name for name in bound if name not in loops]


def _known_names(shell: Any) -> set[str]:
    """Return the names of the user's variables, without modules."""
    names = inspection.user_variables(shell)
    return {name for name in names if not isinstance(shell.user_ns[name], types.ModuleType)}


def _names_that_matter(shell: Any, traceback: str) -> list[str]:
    """Return the names of the variables in the statements that the traceback shows, innermost frame first. For an
    unknown name, add variables with a similar name."""
    known = _known_names(shell)
    sources = list(shell.user_ns.get("In", ()))
    names: dict[str, None] = {}
    for number, line in reversed([(int(number), int(line)) for number, line in FRAME.findall(traceback)]):
        if number < len(sources):
            names |= dict.fromkeys(name for name in _names_in_statement(shell, sources[number], line) if name in known)
    if missing := MISSING.search(traceback):
        names |= dict.fromkeys(difflib.get_close_matches(missing[1], sorted(known), 2))
    return list(names)[:MAX_NAMES]


def _names_in_statement(shell: Any, source: str, line: int) -> list[str]:
    """Return the names in the smallest statement that contains the line ``line``. If that is a compound statement, or
    if the code cannot be parsed, return the names on the line alone."""
    lines = source.splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    smallest = smallest_statement(parse_or_empty(to_plain_python(shell, source)), line)
    if smallest is not None and not hasattr(smallest, "body"):
        return [node.id for node in ast.walk(smallest) if isinstance(node, ast.Name)]
    return [name for name in NAME.findall(text) if not keyword.iskeyword(name)]
