"""Describes the user's variables to the model: one fact per line, limited in size, never a whole value.

Only values of well-known types are inspected. Others are named by their type, because ``str()`` or ``len()`` of an
unknown object may take minutes or reveal secrets. Uses the standard library, ``text_columns`` and ``computed_columns``
only: the server sends the source of these files into kernels without this package.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_kernel.core.file_facts.computed_columns import describe_amount, describe_duration
from agent_kernel.core.file_facts.text_columns import describe_conversion

NAMED = "Variables"
"""Title of the note that describes data that the prompt names."""
EARLIER = "Earlier variables"
"""Title of the note that describes data that an earlier prompt named."""
NEWEST = "Newest tables"
"""Title of the note with the newest tables, where no prompt named data."""
UNNAMED = (EARLIER, NEWEST)
"""Titles of the notes about data that the prompt does not name. They are ignored when prompts are compared."""
DATA_TITLES = (NAMED, *UNNAMED)
NUMBERS = ("int", "uint", "float")
"""Beginnings of the dtypes, in lower case, of columns with numbers."""
MAX_CHARS = 2_000
MAX_COLUMNS = 40
MAX_SCANNED_COLUMNS = 1_000
MAX_SCANNED_ROWS = 100_000
MAX_LOOKED_AT = 1_000
"""Number of cells of an object column that must be plain values before its distinct values are computed."""
MAX_CODE = 1_500
"""Maximum number of characters of a function's source that is shown; longer source is left out."""
SHORT = 60
NAME_IN_BRACES = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")
PLAIN = (bool, int, float, complex, types.NoneType)
SCALAR_PACKAGES = ("numpy", "pandas", "datetime", "decimal", "fractions", "uuid", "pathlib")
"""Packages whose scalars can be converted to text safely."""
ONE_LETTER_WORDS = {"a", "A", "I"}
HISTORY = {"In", "Out"}
"""Variables of IPython with the code and the values of earlier cells."""
EVERYDAY_WORDS = {"a", "i", "name", "date", "time", "type", "id", "value", "values", "text", "number", "index"}
"""Names of columns, in lower case, that also occur in questions about anything else ("What is your name?")."""
MAX_TABLES = 3
"""Maximum number of data frames that are described because the prompt names their columns."""
MAX_NEWEST = 2
"""Maximum number of data frames that are described where the prompt names no data."""


def named_in_braces(prompt: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return variables written as ``{name}`` in the prompt. Other braces are ignored."""
    return [name for name in dict.fromkeys(NAME_IN_BRACES.findall(prompt)) if name in namespace]


def without_braces(prompt: str, names: Iterable[str]) -> str:
    """Remove the braces around ``names``: ``{df}`` becomes ``df``."""
    variables = set(names)
    return NAME_IN_BRACES.sub(lambda match: match[1] if match[1] in variables else match[0], prompt)


def tables_mentioned(prompt: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the data frames and series whose name occurs as a word in the prompt. The names ``a`` and ``I`` do not
    count, because they are also words. If the prompt names no data frame or series, return the data frames whose
    columns the prompt names ("plot rain_mm by month")."""
    words = dict.fromkeys(re.findall(r"(?<![\w.])[A-Za-z_]\w*", prompt))
    table_names = [name for name in words if name not in ONE_LETTER_WORDS and is_table(namespace.get(name))]
    return table_names or _tables_with_columns({word.lower() for word in words} - EVERYDAY_WORDS, namespace)


def _tables_with_columns(words: set[str], namespace: Mapping[str, Any]) -> list[str]:
    """Return the data frames of the user with the most columns among ``words`` (lower case), newest first, at most
    MAX_TABLES. Only labels of type str are compared, because computing the text of an unknown object may run its
    code."""
    hits: dict[str, int] = {}
    for name in _frames(namespace):
        labels = itertools.islice(namespace[name].columns, MAX_SCANNED_COLUMNS)
        columns = {label.lower() for label in labels if type(label) is str}
        if found := len(columns & words):
            hits[name] = found
    most = max(hits.values(), default=0)
    return [name for name, count in hits.items() if count == most][:MAX_TABLES]


def describe_data(
    prompt: str, namespace: Mapping[str, Any], *, named: Iterable[str] = (), earlier: str = "", newest: bool = True
) -> list[str]:
    """Describe the data that a turn is about: the data that the prompt names, and the variables ``named``. If the
    prompt names no data and ``named`` is empty ("And the largest one?"), describe the data that the prompts ``earlier``
    named; if they named no data either and ``newest`` is true, describe the newest tables. The first line is the title
    of the note; the list is empty if there is no data."""
    title = NAMED
    names = list(dict.fromkeys([*(name for name in named if name in namespace), *find_mentioned(prompt, namespace)]))
    if not names:
        title, names = EARLIER, data_mentioned(earlier, namespace)
    if not names and newest:
        title, names = NEWEST, newest_tables(namespace)
    return [title, *(summary(name, namespace[name]) for name in names)] if names else []


def find_mentioned(prompt: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the tables that the prompt names by their own name or by their columns, and other data that it names."""
    return [*dict.fromkeys([*tables_mentioned(prompt, namespace), *data_mentioned(prompt, namespace)])]


def newest_tables(namespace: Mapping[str, Any]) -> list[str]:
    """Return the names of the data frames that were created last, newest first, at most MAX_NEWEST."""
    return list(itertools.islice(_frames(namespace), MAX_NEWEST))


def _frames(namespace: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the user's data frames, newest first. A frame with two names is returned once."""
    seen: set[int] = set()
    for name, value in reversed([*namespace.items()]):
        if not name.startswith("_") and is_frame(value) and id(value) not in seen:
            seen.add(id(value))
            yield name


def data_mentioned(prompt: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return tables, arrays, containers and functions of the user whose name occurs as a word in the prompt."""
    words = dict.fromkeys(re.findall(r"(?<![\w.])[A-Za-z_]\w*", prompt))
    variables = ((name, namespace.get(name)) for name in words if name not in (*ONE_LETTER_WORDS, *HISTORY))
    return [name for name, value in variables if _is_data(value) or _is_own_function(value)]


def summary(name: str, value: Any) -> str:
    """Describe a variable: its name with the first fact about its value, then one further fact on each line."""
    try:
        lines = facts(value, name)
    except Exception:  # noqa: BLE001  a person's object may raise anything, and a turn must not fail for it
        lines = [type_name(value)]
    text = "\n".join([f"{name}: {lines[0]}", *lines[1:]])
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."


def facts(value: Any, name: str = "df") -> list[str]:
    """Return the facts about a value, one per line. Expressions in them call the value ``name``."""
    if is_frame(value):
        return _frame(value, name)
    if is_series(value):
        return _series(value)
    if hasattr(type(value), "shape") and hasattr(type(value), "dtype"):
        return _array(value)
    if type(value) in PLAIN or _is_known_scalar(value):
        return [f"{type_name(value)} = {cut(repr(value))}"]
    if type(value) in (str, bytes):
        return _text(value)
    if type(value) in (list, tuple, set, frozenset, dict):
        return _container(value)
    if issubclass(type(value), types.ModuleType):  # isinstance would ask the value for its class
        return [f"module {value.__name__} {getattr(value, '__version__', '')}".rstrip()]
    if type(value) is types.FunctionType:
        return _function(value)
    return [type_name(value)]


def is_table(value: Any) -> bool:
    return is_frame(value) or is_series(value)


def _is_data(value: Any) -> bool:
    return is_table(value) or package(value) == "numpy" or type(value) in (list, dict, set, tuple)


def _is_own_function(value: Any) -> bool:
    return type(value) is types.FunctionType and value.__module__ == "__main__"


def is_frame(value: Any) -> bool:
    return type(value).__name__ in ("DataFrame", "GeoDataFrame") and package(value) in (
        "pandas",
        "polars",
        "geopandas",
    )


def is_series(value: Any) -> bool:
    return type(value).__name__ == "Series" and package(value) in ("pandas", "polars")


def package(value: Any) -> str:
    return str(type(value).__module__).partition(".")[0]


def _frame(frame: Any, name: str) -> list[str]:
    rows, columns = frame.shape
    named = columns_of(frame)
    kinds = ", ".join(f"{label} {column.dtype}" for label, column in named)
    more = f", and {columns - MAX_COLUMNS} more" if columns > MAX_COLUMNS else ""
    lines = [f"{type(frame).__name__}, {rows} rows x {columns} columns: {kinds}{more}"]
    if index := _index(frame):
        lines.append(index)
    if rows:
        lines.append(f"first row: {describe_cells(frame)}")
    if rows <= MAX_SCANNED_ROWS:
        lines += [line for label, column in named if (line := _column(label, column))]
        if missing := [f"{label} {count}" for label, column in named if (count := _count_missing(column))]:
            lines.append(f"missing values: {', '.join(missing)}")
        if package(frame) == "pandas":
            lines += [line for label, column in named if (line := _conversion(name, label, column))]
            numbers = [label for label, column in named if str(column.dtype).lower().startswith(NUMBERS)]
            dates = [label for label, column in named if str(column.dtype).startswith("datetime")]
            lines += filter(None, [describe_amount(name, numbers), describe_duration(name, dates, numbers)])
    return lines


def _count_missing(column: Any) -> int:
    return int(column.null_count() if hasattr(column, "null_count") else column.isna().sum())


def _index(frame: Any) -> str:
    """Describe the index of a data frame, unless it only numbers the rows."""
    index = getattr(frame, "index", None)
    if index is None or type(index).__name__ == "RangeIndex":
        return ""
    return f"index: {index.name or 'unnamed'} {index.dtype}"


def describe_cells(frame: Any) -> str:
    """Return the values of the first row of a data frame, each with its column."""
    return ", ".join(f"{name}={_cell(column)}" for name, column in columns_of(frame))


def columns_of(frame: Any, limit: int = MAX_COLUMNS) -> list[tuple[Any, Any]]:
    """Return (label, column) for the first ``limit`` columns. They are selected by position, because several columns
    may have the same label."""
    labels = itertools.islice(frame.columns, limit)
    return [(label, frame.iloc[:, at] if hasattr(frame, "iloc") else frame[:, at]) for at, label in enumerate(labels)]


def _cell(column: Any) -> str:
    # to_list converts numpy values to Python values. Otherwise a numpy int64 would be shown in quotes, and a model then
    # compared numbers with text.
    (first,) = column.head(1).to_list()
    if type(first) is str or not (type(first) in PLAIN or _is_known_scalar(first)):
        return short_text(first)
    return cut(str(first) if isinstance(first, bool | int | float) else repr(str(first)))


def _column(name: Any, column: Any) -> str:
    """Describe the distinct values of a categorical column, or the range of a date column."""
    kind = str(column.dtype).lower()
    if kind.startswith(("datetime", "date")):
        return f"{name}: from {column.min()} to {column.max()}"
    if kind.startswith(("object", "str", "category", "utf8", "cat")):
        present = column.drop_nulls() if hasattr(column, "drop_nulls") else column.dropna()
        if not all(type(value) in (str, *PLAIN) for value in itertools.islice(present, MAX_LOOKED_AT)):
            return ""
        try:
            values = list(itertools.islice(present.unique(), 9))
        except TypeError:  # cells that cannot be compared, lists for example
            return ""
        if values and len(values) <= 8:
            return f"{name} values: " + ", ".join(cut(str(value)) for value in values)
    return ""


def _conversion(frame: str, label: Any, column: Any) -> str:
    """Return ``describe_conversion`` of a column of a pandas data frame."""
    if not str(column.dtype).lower().startswith(("object", "str", "category")):
        return ""
    return describe_conversion(frame, label, list(itertools.islice(column.dropna(), MAX_LOOKED_AT)))


def _series(series: Any) -> list[str]:
    lines = [f"Series {series.name or ''}".rstrip() + f", {len(series)} values of {series.dtype}"]
    if len(series):
        lines.append("first: " + ", ".join(item_text(value) for value in series.head(5).to_list()))
    return lines


def _array(array: Any) -> list[str]:
    """Describe an array. ``shape`` and ``dtype`` are always cheap; values are read from numpy arrays only."""
    lines = [f"{type_name(array)}, shape {tuple(array.shape)}, {array.dtype}"]
    if package(array) == "numpy" and array.size:
        lines.append("first: " + ", ".join(item_text(value) for value in itertools.islice(array.flat, 5)))
    return lines


def _text(value: str | bytes) -> list[str]:
    unit = "characters" if isinstance(value, str) else "bytes"
    quoted = repr(value[:300])
    return [f"{type(value).__name__} of {len(value)} {unit}: {quoted}{' ...' if len(value) > 300 else ''}"]


def _container(value: Any) -> list[str]:
    if isinstance(value, dict):
        some = [f"{short_text(key)}: {short_text(item)}" for key, item in itertools.islice(value.items(), 10)]
    else:
        some = [short_text(item) for item in itertools.islice(value, 5)]
    more = ", ..." if len(value) > len(some) else ""
    return [f"{type(value).__name__} of {len(value)}: {', '.join(some)}{more}"]


def short_text(value: Any) -> str:
    if type(value) in PLAIN or _is_known_scalar(value):
        return cut(repr(value))
    if type(value) is str:
        return cut(repr(value[: SHORT + 1]))
    return type_name(value)


def item_text(value: Any) -> str:
    """Format an item without quotes, as tables print it."""
    return cut(str(value)) if type(value) in (str, *PLAIN) or _is_known_scalar(value) else type_name(value)


def _is_known_scalar(value: Any) -> bool:
    """Return whether the value is a scalar of a well-known package."""
    return (
        package(value) in SCALAR_PACKAGES and not hasattr(type(value), "__len__") and not issubclass(type(value), type)
    )


def _function(function: types.FunctionType) -> list[str]:
    arguments = ", ".join(function.__code__.co_varnames[: function.__code__.co_argcount])
    lines = [f"function {function.__name__}({arguments})"]
    if _is_own_function(function) and (code := _source(function)):
        return [f"{lines[0]}, defined by", code]
    if function.__doc__:
        lines.append(cut(function.__doc__.strip().partition("\n")[0]))
    return lines


def _source(function: types.FunctionType) -> str:
    """Return the indented source of a function that a cell defined; an empty string if the notebook no longer has it or
    if it is longer than MAX_CODE characters."""
    # If the cell is unknown, inspect.getsource would return lines of the program that runs the kernel.
    lines = linecache.getlines(function.__code__.co_filename)
    code = textwrap.dedent("".join(inspect.getblock(lines[function.__code__.co_firstlineno - 1 :]))).strip()
    return textwrap.indent(code, "    ") if len(code) <= MAX_CODE else ""


def type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def cut(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."
