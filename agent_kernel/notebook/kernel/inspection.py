"""Describes the user's kernel to the model: its variables, one variable in detail, executed cells, the last failure.

Changes nothing and never calls ``str()`` on unknown objects. Inspecting one value is limited to PATIENCE_S seconds.
Uses the standard library and ``variable_summary`` only: the server sends the source of this file, of that file and of
``text_columns`` into kernels without this package.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from agent_kernel.notebook.kernel.variable_summary import (
    columns_of,
    cut,
    facts,
    is_frame,
    is_series,
    is_table,
    item_text,
    package,
    short_text,
    type_name,
)

PATIENCE_S = 0.5
"""Time limit in seconds for inspecting one value."""
ALL_S = 5.0
LINE = 200
ROWS = 5
COLUMNS = 12
FIELDS = 20
MAX_CELLS = 5_000_000
"""Tables with more cells get no count of missing values. Counting takes about 0.1 s for numbers, 1 s for objects."""
CHARS = 4_000
OWN = ("In", "Out", "exit", "quit", "get_ipython")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class TookTooLong(BaseException):
    """Raised when inspecting takes too long. A BaseException, so that ``except Exception`` in the user's object does
    not catch it."""


def variables(shell: Any, name: str = "", chars: int = CHARS) -> str:
    """Describe all variables of the user in one line each, newest first, or the variable ``name`` in detail. The text
    has at most ``chars`` characters, plus one line that states how many variables are left out."""
    namespace: Mapping[str, Any] = shell.user_ns
    if name:
        if name not in namespace:
            return f"There is no variable {cut(name)!r} in this kernel."
        return _shorten(
            "\n".join(_call_with_time_limit(lambda: _closely(name, namespace[name]), name, namespace[name])), chars
        )
    names = user_variables(shell)[::-1]
    modules = [name for name in names if issubclass(type(namespace[name]), types.ModuleType)]
    lines = _lines([name for name in names if name not in modules], namespace, chars)
    if modules:
        lines.append(_shorten(f"modules: {', '.join(modules)}", LINE))
    return "\n".join(lines) or "There are no variables yet."


def user_variables(shell: Any) -> list[str]:
    """Return the names of the user's variables, oldest first. Variables of IPython and names that begin with an
    underscore are left out."""
    hidden = getattr(shell, "user_ns_hidden", {})
    return [
        name
        for name, value in list(shell.user_ns.items())
        if not name.startswith("_") and name not in OWN and not (name in hidden and hidden[name] is value)
    ]


def executions(shell: Any, history: Any, numbers: tuple[int, ...] = (), chars: int = CHARS) -> str:
    """Describe the executed cells in one line each, newest last. With ``numbers``, describe only the executions with
    these numbers, each with its source, value and error. ``history`` is an ExecutionHistory, or None in a kernel that
    has no history."""
    sources: list[str] = list(shell.user_ns.get("In", ())) or [""]
    if not numbers:
        recent = [number for number in range(1, len(sources)) if sources[number].strip()][-20:]
        return "\n".join(_execution_line(number, sources[number], history) for number in recent) or "Nothing ran yet."
    described = [_describe_execution(shell, number, sources, history) for number in numbers]
    return _shorten("\n\n".join(described), chars)


def last_error(shell: Any, history: Any) -> str:
    """Describe the user's last failed cell with its traceback."""
    failure = history.failure if history is not None else _last_failure(shell)
    return describe_failure(failure, CHARS) if failure else "No cell has failed since the kernel was started."


def describe_failure(failure: tuple[int, str, str, str], chars: int) -> str:
    """Describe a failed cell. ``failure`` is (execution number, cell name, source, traceback)."""
    number, cell, source, traceback_text = failure
    place = f"In[{number}]" + (f" (cell {cell})" if cell else "")
    half = chars // 2
    return f"{place} failed. Its source:\n{_middle(source, half)}\n\n{_middle(traceback_text, half)}"


def format_traceback(error: BaseException, sources: Callable[[str], str]) -> str:
    """Format a traceback without colors and without IPython's frames. ``sources`` maps a file name to the name of its
    cell, or to "" if it is not a cell."""
    frames = [
        f"  {sources(frame.filename) or frame.filename}, line {frame.lineno}, in {frame.name}\n    {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "IPython" not in frame.filename
    ]
    shown_frames = (
        frames if len(frames) <= 12 else [*frames[:4], f"  ... {len(frames) - 10} more frames ...", *frames[-6:]]
    )
    raised = _call_with_time_limit(lambda: traceback.format_exception_only(error), type(error).__name__, error)
    return ESCAPES.sub("", "\n".join(["Traceback (most recent call last):", *shown_frames, "".join(raised).rstrip()]))


def _lines(names: list[str], namespace: Mapping[str, Any], chars: int) -> list[str]:
    lines: list[str] = []
    size, end = 0, time.monotonic() + ALL_S
    for count, name in enumerate(names):
        if size > chars or time.monotonic() > end:
            more = ", ".join(itertools.islice(names, count, count + 20))
            return [*lines, _shorten(f"and {len(names) - count} more: {more}", LINE)]
        value = namespace[name]
        line = _shorten(_call_with_time_limit(partial(_line, name, value), name, value)[0], LINE)
        lines.append(line)
        size += len(line) + 1
    return lines


def _line(name: str, value: Any) -> list[str]:
    (first, *_), size = facts(value), _memory(value)
    return [f"{name}: {first}" + (f" ({size})" if size else "")]


def _closely(name: str, value: Any) -> list[str]:
    lines = [*_line(name, value), *facts(value)[1:]]
    if is_table(value):
        return [*lines, *_nulls(value), *_head(value)]
    if lines == [f"{name}: {type_name(value)}"]:
        lines += _inside(value)
    return lines


def _nulls(table: Any) -> list[str]:
    columns = [("", table)] if is_series(table) else [(str(name), column) for name, column in columns_of(table)]
    if len(table) * len(columns) > MAX_CELLS:
        return ["missing values: not counted, the table is too large"]
    counts = [(name, _missing(column)) for name, column in columns]
    nonzero = [f"{name} {count}".strip() for name, count in counts if count]
    return [f"missing values: {', '.join(nonzero) or 'none'}"]


def _missing(column: Any) -> int:
    return int((column.is_null() if hasattr(column, "is_null") else column.isna()).sum())


def _head(table: Any) -> list[str]:
    """Return the lines that show the column names and the first rows of a table; empty for other values."""
    if not is_frame(table):
        return []
    column_labels = columns_of(table, COLUMNS)
    rows = zip(
        *([item_text(value) for value in column.head(ROWS).to_list()] for _, column in column_labels), strict=True
    )
    more = " | ..." if len(table.columns) > COLUMNS else ""
    return [
        "first rows:",
        " | ".join(str(name) for name, _ in column_labels) + more,
        *(" | ".join(row) + more for row in rows),
    ]


def _inside(value: Any) -> list[str]:
    """Describe an object of unknown type by its class docstring and its fields, which are read without calling methods
    that its class overrides."""
    kind = type(value)
    lines: list[str] = []
    if isinstance(doc := kind.__dict__.get("__doc__"), str) and doc.strip():
        lines.append(_shorten(doc.strip().partition("\n")[0], LINE))
    with contextlib.suppress(AttributeError, TypeError):
        fields = object.__getattribute__(value, "__dict__")
        lines += [f"  .{name} = {short_text(field)}" for name, field in itertools.islice(fields.items(), FIELDS)]
    methods = [name for name, item in kind.__dict__.items() if callable(item) and not name.startswith("_")]
    if methods:
        lines.append(_shorten("methods: " + ", ".join(methods), LINE))
    return lines


def _memory(value: Any) -> str:
    """Return the memory size of a value in MB, or "" if it is small or not cheap to determine. For tables, the content
    of object cells is not counted."""
    if is_frame(value) or is_series(value):
        size = value.estimated_size() if hasattr(value, "estimated_size") else value.memory_usage(deep=False)
        size = int(size.sum()) if hasattr(size, "sum") else int(size)
    elif package(value) in ("numpy", "torch") and type(value).__name__ in ("ndarray", "Tensor"):
        size = int(value.nbytes)
    elif type(value) in (str, bytes, list, tuple, set, frozenset, dict):
        size = sys.getsizeof(value)
    else:
        return ""
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else ""


def _execution_line(number: int, source: str, history: Any) -> str:
    cell, error = history.of(number) if history is not None else ("", "")
    first = next((line for line in source.splitlines() if line.strip()), "")
    place = f"In[{number}]" + (f" cell {cell}" if cell else "")
    return _shorten(f"{place}: {first}", LINE) + (f" -> {error}" if error else "")


def _describe_execution(shell: Any, number: int, sources: list[str], history: Any) -> str:
    if not 0 < number < len(sources):
        return f"In[{number}] did not run since the kernel was started."
    cell, error = history.of(number) if history is not None else ("", "")
    parts = [f"In[{number}]" + (f" (cell {cell})" if cell else "") + ":", _middle(sources[number], 2_000)]
    values = shell.user_ns.get("Out", {})
    if number in values:
        value = values[number]
        parts.append("\n".join(_call_with_time_limit(lambda: _line(f"Out[{number}]", value), f"Out[{number}]", value)))
    return "\n".join([*parts, f"It failed: {error}"] if error else parts)


def _last_failure(shell: Any) -> tuple[int, str, str, str] | None:
    """Return the last failure of a kernel that has no execution history. It comes from Python's own record
    (``sys.last_exc`` or ``sys.last_value``)."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return None
    sources: list[str] = list(shell.user_ns.get("In", ())) or [""]
    numbers = dict(getattr(shell.compile, "_filename_map", {}))
    frames = traceback.extract_tb(error.__traceback__)
    number = next((numbers[frame.filename] for frame in frames if frame.filename in numbers), len(sources) - 1)
    source = sources[number] if 0 < number < len(sources) else ""
    return number, "", source, format_traceback(error, lambda file: f"In[{numbers[file]}]" if file in numbers else "")


def _call_with_time_limit(look: Callable[[], list[str]], name: str, value: Any) -> list[str]:
    """Return the result of ``look(name, value)``. If ``look`` fails or takes longer than PATIENCE_S seconds, return
    only the name and the type of the value."""
    try:
        with _limit_seconds(PATIENCE_S):
            return look()
    except TookTooLong:
        return [f"{name}: {type_name(value)} (inspecting it took too long)"]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a person's object may raise anything, SystemExit too
        return [f"{name}: {type_name(value)}"]


@contextlib.contextmanager
def _limit_seconds(seconds: float) -> Iterator[None]:
    """Context manager that raises TookTooLong in the Python code of its body after ``seconds``. It has no effect
    outside the main thread, and where alarms are unavailable or in use.
    """
    alarms = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not alarms or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # repeats, because code may suppress the first exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)


def _middle(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    return f"{text[: chars // 2]}\n[... {len(text) - chars} characters left out ...]\n{text[-chars // 2 :]}"


def _shorten(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} ..."
