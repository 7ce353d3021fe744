"""``%agent fix``: turns the last failed cell into a request for a corrected one.

Where the kernel can be copied, the corrected cell runs in a draft of the kernel as it is now, and only a cell that ran
without an error is proposed.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import keyword
import re
import symtable
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_kernel.notebook.display.render import Bundle
from agent_kernel.notebook.kernel import inspection
from agent_kernel.notebook.kernel.changed_names import UNREADABLE, loop_names, to_plain_python
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.kernel.variable_summary import summary
from agent_kernel.notebook.turn.execution_history import ExecutionHistory

CHARS = 6_000
"""Limit for source and traceback together; longer texts keep their head and tail."""
FIX = "Correct the cell In[{number}], which failed with {error}. Give the whole cell as it should be."
MAKES = " It makes {names}."
NOT_TRIED = "The proposed cell was not tried in a draft. Read it before you run it."
NONE_RAN = "No corrected cell ran without an error, so none is proposed. Say more: %agent fix WORDS."
SAME = "The proposed cell is the same code that failed, so it is not proposed. Say more: %agent fix WORDS."
MAX_NAMES = 8
NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
FRAME = re.compile(r"^  In\[(\d+)\], line (\d+), in ", re.MULTILINE)
MISSING = re.compile(r"^NameError: name '(\w+)' is not defined", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FixRequest:
    """A request to correct a failed cell: the prompt, ``notes`` for the model, and ``source``, the code of the failed
    cell."""

    prompt: str
    notes: tuple[dict[str, str], ...]
    source: str


def build_fix_request(shell: Any, executions: ExecutionHistory, words: str) -> FixRequest:
    """Build the request; ``words`` are what the user adds. Raises AgentError when no cell has failed since the
    kernel started."""
    failure = executions.failure
    if failure is None:
        raise AgentError("no cell has failed since this kernel was started; run the one that fails, then ask again.")
    number, _, source, traceback = failure
    last_line = traceback.strip().splitlines()[-1] if traceback.strip() else "an error"
    error = last_line if len(last_line) <= 200 else f"{last_line[:200]} ..."
    prompt = FIX.format(number=number, error=error)
    if made := _names_made(shell, source):
        prompt += MAKES.format(names=", ".join(made))
    prompt += f"\n{words}" if words else ""
    notes = [{"title": "The cell that failed", "text": inspection.last_error(shell, executions, CHARS)}]
    facts = [summary(name, shell.user_ns[name]) for name in _names_that_matter(shell, traceback)]
    notes += [{"title": "Variables", "text": "\n".join(facts)}] if facts else []
    return FixRequest(prompt, tuple(notes), source)


def diff_bundle(failed: str, proposed: str) -> Bundle:
    """Return the change from the failed cell to the proposed one, as an output."""
    lines = difflib.unified_diff(failed.splitlines(), proposed.splitlines(), n=100, lineterm="")
    text = "\n".join(itertools.islice(lines, 3, None))  # without the headers, which name files
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return {"text/markdown": f"{ticks}diff\n{text}\n{ticks}", "text/plain": text}


def is_same_code(shell: Any, one: str, other: str) -> bool:
    """Compare two cells, ignoring comments, blank lines and layout."""
    try:
        first, second = (ast.dump(ast.parse(to_plain_python(shell, code))) for code in (one, other))
    except UNREADABLE:
        return one.split() == other.split()
    return first == second


def _names_made(shell: Any, source: str) -> list[str]:
    """Return the names that the cell binds at its top level, in order, without imports, loop variables and names that
    exist already."""
    code = to_plain_python(shell, source)
    try:
        symbols = symtable.symtable(code, "cell", "exec").get_symbols()
    except UNREADABLE:
        return []
    loops = loop_names(code)
    bound = [symbol.get_name() for symbol in symbols if symbol.is_assigned() and not symbol.is_imported()]
    return [name for name in bound if name not in shell.user_ns and name not in loops][:MAX_NAMES]


def _names_that_matter(shell: Any, traceback: str) -> list[str]:
    """Return the variables used in the statements of the traceback, innermost frame first. For an unknown name, add
    variables with a similar name."""
    namespace, hidden = shell.user_ns, getattr(shell, "user_ns_hidden", {})
    known = {
        name
        for name, value in namespace.items()
        if not name.startswith("_") and name not in hidden and not isinstance(value, types.ModuleType)
    }
    sources = list(namespace.get("In", ()))
    names: dict[str, None] = {}
    for number, line in reversed([(int(number), int(line)) for number, line in FRAME.findall(traceback)]):
        if number < len(sources):
            names |= dict.fromkeys(name for name in _names_in_statement(shell, sources[number], line) if name in known)
    if missing := MISSING.search(traceback):
        names |= dict.fromkeys(difflib.get_close_matches(missing[1], sorted(known), 2))
    return list(names)[:MAX_NAMES]


def _names_in_statement(shell: Any, source: str, line: int) -> list[str]:
    """Return the names in the smallest statement around ``line``. For a compound statement, and for code that cannot
    be parsed, return the names on the line alone."""
    lines = source.splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    try:
        around = list(_statements(ast.parse(to_plain_python(shell, source)), line))
    except UNREADABLE:
        around = []
    smallest = min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)
    if smallest is not None and not hasattr(smallest, "body"):
        return [node.id for node in ast.walk(smallest) if isinstance(node, ast.Name)]
    return [name for name in NAME.findall(text) if not keyword.iskeyword(name)]


def _statements(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node
