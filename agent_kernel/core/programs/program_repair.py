"""Corrects a program that ended with an error, if the message of the error determines the correction: a method that
newer versions of pandas have under another name, a column label that differs in case or spaces, text that must be
converted. The functions have no side effects.

Small models learned to write programs for older versions of pandas, and repeat a mistake when they try again."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from agent_kernel.core.programs.failed_program import FailedProgram
from agent_kernel.core.programs.program_edits import REDUCTIONS, YEARS, Edit, date_columns, is_integer, letters_of

LABELS = re.compile(r"Columns of [^:\n]+: ((?:(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?\d+)(?:, )?)+)")
"""Matches the hint about an error that lists the columns of a table (see ``error_hints``)."""
QUOTED = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
NEW_NAMES = {
    "iteritems": "items",
    "applymap": "map",
    "ix": "loc",
    "NaN": "nan",
    "Inf": "inf",
    "trapz": "trapezoid",
    "product": "prod",
    "in1d": "isin",
    "row_stack": "vstack",
}
"""The present names of attributes that pandas 3 and NumPy 2 removed."""
BUILTINS = frozenset({"float", "int", "bool", "object", "str", "complex"})
"""Names of Python types that were also attributes of NumPy in older versions, such as ``np.float``."""
REMOVED_OPTIONS = frozenset({"infer_datetime_format", "error_bad_lines", "warn_bad_lines", "squeeze", "date_parser"})
"""Arguments that pandas removed and whose effect is the default now or is not needed."""
NUMERIC_ONLY = re.compile(
    r"Cannot perform reduction '\w+' with string dtype|dtype '(?:str|object)' does not support operation '\w+'"
    r"|agg function failed \[how->\w+,dtype->\w+\]|could not convert string to float"
)
NOT_A_NUMBER = re.compile(
    r"could not convert string to float: '(?P<float>.*)'|invalid literal for int\(\) with base 10: '(?P<int>.*)'"
    r"|Unable to parse string [\"'](?P<parsed>.*)[\"'] at position"
)
CONVERTED = ("_number", "_date", "_time", "_lower", "_true")
"""Suffixes of the names of variables that contain converted columns (``core.file_facts.text_columns``)."""
DATE_PART = re.compile(r"year|month|day|quarter|weekday|dayofweek|hour")
DECIMAL_COMMA = re.compile(r"\d,\d{1,2}(?!\d)")
OF_GROUPS = re.compile(
    r"(?P<table>\w+)\.groupby\((?P<key>[^()]*)\)\.n(?P<end>largest|smallest)\((?P<count>\w+), ?(?P<column>[^()]*)\)"
)
MERGE_SUFFIX = re.compile(r"suffixes=\('', '(_\w+)'\)")
"""Finds the suffix that a program gives to labels of the second table of a merge."""


def repair_program(code: str, result: str) -> str:
    """Return the corrected program. ``result`` is the text of the error with its traceback, as a model reads it.
    Return an empty string if no correction is known for this error."""
    failure = FailedProgram(code, result)
    matches = ((rule, found) for pattern, rule in RULES if (found := pattern.search(failure.error)))
    corrections = (failure.apply_edits(list(rule(failure, found))) for rule, found in matches)
    return next(filter(None, corrections), "")


def _as_numbers(failure: FailedProgram, column: ast.expr) -> str:
    """Return an expression for the numbers in a column of text: the variable to which an earlier statement assigned
    them, otherwise a conversion."""
    source = failure.source(column)
    for target, value in failure.assignments:
        is_conversion = isinstance(value, ast.Call) and failure.source(value).startswith(f"pd.to_numeric({source}")
        if isinstance(target, ast.Name) and is_conversion:
            return target.id
    return _to_numbers(source)


def _names(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace a name that does not exist by the name of a variable, if exactly one variable's name
    differs from it only in case, underscores or a final s."""
    similar = [name for name in failure.assigned if _singular(name) == _singular(found[1])]
    if len(similar) == 1 and found[1] not in failure.assigned:
        places = (node for node in failure.expressions if isinstance(node, ast.Name) and node.id == found[1])
        yield from ((*failure.span(node), similar[0]) for node in places)


def _labels(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that correct a column label that differs from exactly one existing label only in case, spaces or
    punctuation, or by a suffix that ``merge`` gives only to labels of both tables (``type_schools``)."""
    columns = [label for listed in LABELS.findall(failure.text) for label in _strings(listed)]
    lacking = {found[1]} if found[1] else set(_strings(failure.error))
    for label in lacking - set(columns):
        # A model may mistake a variable for a column: it writes t['price_number'] after price_number = ...
        letters = letters_of(label)
        variables = [name for name in failure.assigned if name.endswith(CONVERTED) and letters_of(name) == letters]
        similar = {column for column in columns if letters_of(column) == letters}
        suffixes = [suffix for suffix in MERGE_SUFFIX.findall(failure.code) if label.endswith(suffix)]
        similar |= {column for column in columns for suffix in suffixes if column == label.removesuffix(suffix)}
        if variables and not similar:
            places = [node for node in failure.failed if isinstance(node, ast.Subscript)]
            yield from ((*failure.span(node), variables[0]) for node in places if _has_label(node, label))
        if not letters or len(similar) != 1:
            continue
        (column,) = similar
        for node in failure.nodes:
            if isinstance(node, ast.Constant) and node.value == label:
                yield (*failure.span(node), repr(column))
            elif isinstance(node, ast.Attribute) and node.attr == label and node in failure.failed:
                yield (failure.span(node.value)[1], failure.span(node)[1], f"[{column!r}]")


def _has_label(node: ast.Subscript, label: str) -> bool:
    return isinstance(node.slice, ast.Constant) and node.slice.value == label


def _strings(text: str) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", one) for one in QUOTED.findall(text)]


def _singular(name: str) -> str:
    return letters_of(name).removesuffix("s")


def _variables_as_columns(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits for ``t[['a', 'b']]`` if the table lacks the column ``b``, but the program has a variable ``b``: they
    insert a line that stores the variable as the column before it is selected."""
    missing = [label for label in _strings(found[1]) if label in failure.assigned]
    for node in failure.failed if missing else ():
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.List):
            labels = [one.value for one in node.slice.elts if isinstance(one, ast.Constant)]
            start = failure.code.rfind("\n", 0, failure.span(node)[0]) + 1
            indent = re.match(r"[ \t]*", failure.code[start:])
            lines = [f"{node.value.id}[{one!r}] = {one}\n" for one in missing if one in labels]
            if lines and indent:
                yield (start, start, "".join(f"{indent[0]}{line}" for line in lines))
            return


def _frequency(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace the old name of a frequency in pandas, such as 'H' or 'M', by its present name, 'h' or
    'ME'."""
    for node in failure.failed:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            renamed = re.sub(rf"(?<![A-Za-z]){found['old']}(?![A-Za-z])", found["new"], node.value)
            if renamed != node.value:
                yield (*failure.span(node), repr(renamed))


def _removed_names(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace an attribute that pandas or NumPy has removed. The method ``append`` of a table becomes
    ``pd.concat``."""
    name = found[1] or found[2]
    of_table = re.search(r"'(?:DataFrame|Series)' object has no attribute 'append'", failure.error)
    owners = {failure.source(node.value) for node in failure.failed if isinstance(node, ast.Attribute)}
    calls = [node for node in failure.expressions if isinstance(node, ast.Call)]
    for node in failure.expressions:
        if not isinstance(node, ast.Attribute) or node.attr != name or failure.source(node.value) not in owners:
            continue
        start, end = failure.span(node)
        owner = failure.source(node.value)
        if name in NEW_NAMES:
            yield (failure.span(node.value)[1], end, f".{NEW_NAMES[name]}")
        elif name in BUILTINS and owner in ("np", "numpy"):
            yield (start, end, name)
        elif of_table:
            call = next((call for call in calls if call.func is node and call.args), None)
            if call is not None and not isinstance(call.args[0], ast.Dict):
                first, *options = failure.arguments(call, without=("verify_integrity",))
                yield (*failure.span(call), f"pd.concat({', '.join([f'[{owner}, {first}]', *options])})")


def _options(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that remove or replace a keyword argument that newer versions of pandas do not accept."""
    name = found[1]
    for call in failure.calls:
        value = next((one.value for one in call.keywords if one.arg == name), None)
        if value is None:
            continue
        plain = f"{failure.source(call.func)}({', '.join(failure.arguments(call, without=(name,)))})"
        constant = value.value if isinstance(value, ast.Constant) else None
        if name in REMOVED_OPTIONS:
            yield (*failure.span(call), plain)
        elif name == "squared" and constant is False:
            yield (*failure.span(call), f"({plain} ** 0.5)")
        elif name == "method" and isinstance(call.func, ast.Attribute) and call.func.attr == "fillna":
            fill = {"ffill": "ffill", "pad": "ffill", "bfill": "bfill", "backfill": "bfill"}.get(str(constant), "")
            if fill:
                yield (*failure.span(call), f"{failure.source(call.func.value)}.{fill}()")


def _numbers_in_text(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits after which the program converts texts such as '1,234' or '5 kg' to numbers without an error."""
    if DECIMAL_COMMA.search(next((one for one in found.groups() if one is not None), "")):
        return
    for call in failure.calls:
        function = failure.source(call.func)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "astype" and len(call.args) == 1:
            yield (*failure.span(call), _to_numbers(failure.source(call.func.value)))
        elif function == "pd.to_numeric" and len(call.args) == 1 and not call.keywords:
            yield (*failure.span(call), _to_numbers(failure.source(call.args[0])))


def _to_numbers(column: str) -> str:
    return f"pd.to_numeric({column}.astype(str).str.replace(r'[^\\d.eE+-]', '', regex=True), errors='coerce')"


def _numeric_only(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits for a statistic that fails because of text. They restrict it to the numeric columns of a table, or
    convert a column of text to numbers first."""
    for call in failure.calls:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in REDUCTIONS and not (call.args or call.keywords):
            column = func.value
            if isinstance(column, ast.Subscript) and isinstance(column.value, ast.Name):
                yield (*failure.span(column), _as_numbers(failure, column))
            elif not (isinstance(column, ast.Subscript) and isinstance(column.slice, ast.Constant)):
                end = failure.span(call)[1]
                yield (end - 1, end - 1, "numeric_only=True")


def _accessors(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that convert the column before ``.dt`` to dates if it contains text, or the column before ``.str`` to
    text if it contains numbers."""
    converted = {"dt": "pd.to_datetime({})", "str": "{}.astype(str)"}[found[1]]
    owners = [node.value for node in failure.failed if isinstance(node, ast.Attribute) and node.attr == found[1]]
    for owner in owners:
        yield (*failure.span(owner), converted.format(failure.source(owner)))


def _date_index(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits after which the program converts a column of text to dates before ``set_index`` makes it the index,
    if a method needs an index of dates."""
    for call in failure.calls:
        func = call.func
        indexed = isinstance(func, ast.Attribute) and func.attr == "set_index" and len(call.args) == 1
        if indexed and isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            label, table = failure.source(call.args[0]), func.value.id
            if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                yield (*failure.span(func.value), f"{table}.assign(**{{{label}: pd.to_datetime({table}[{label}])}})")


def _date_column(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace a part of a date that is read from an index without dates, ``t.index.year``, by the same
    part of the only column of dates, ``t['day'].dt.year``."""
    columns = set(date_columns(failure))
    for node in failure.expressions if len(columns) == 1 else ():
        is_part = isinstance(node, ast.Attribute) and DATE_PART.fullmatch(node.attr)
        if isinstance(node, ast.Attribute) and is_part and failure.source(node.value).endswith(".index"):
            yield (*failure.span(node), f"{next(iter(columns))}.dt.{node.attr}")


def _date_formats(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits after which the program can parse dates that are written in more than one format, or with the day
    first."""
    day_first = re.search(r"time data [\"'](?:\d{2}[/.]){2}\d{4}", failure.error)
    for call in failure.calls:
        if failure.source(call.func).endswith("to_datetime") and call.args:
            kept = failure.arguments(call, without=("format", "dayfirst"))
            options = ["format='mixed'", *(["dayfirst=True"] if day_first else [])]
            yield (*failure.span(call), f"pd.to_datetime({', '.join([*kept, *options])})")


def _conditions(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace ``and`` and ``or`` between columns by ``&`` and ``|``."""
    for node in failure.failed:
        if isinstance(node, ast.BoolOp) and not any(isinstance(value, ast.BoolOp) for value in node.values):
            sign = " & " if isinstance(node.op, ast.And) else " | "
            yield (*failure.span(node), sign.join(f"({failure.source(value)})" for value in node.values))


def _comparisons(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that convert one side of a comparison, if the program compares dates with a year or with a ``date``,
    or text with a number."""
    kinds = found.groups()
    for node in failure.failed:
        if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
            continue
        column, value = node.left, node.comparators[0]
        number = value.value if isinstance(value, ast.Constant) else None
        if kinds == ("datetime64", "int") and type(number) is int and number in YEARS:
            yield (*failure.span(column), f"{failure.source(column)}.dt.year")
        elif kinds == ("datetime64", "date"):
            yield (*failure.span(value), f"pd.Timestamp({failure.source(value)})")
        elif kinds[0] in ("str", "object") and type(number) in (int, float):
            yield (*failure.span(column), _as_numbers(failure, column))


def _missing_integers(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace the type of ``astype`` by Int64 for a column with missing values, because int has no
    missing values."""
    for call in failure.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "astype" and len(call.args) == 1:
            yield (*failure.span(call.args[0]), "'Int64'")


def _pivot(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that add the names of the arguments to calls of ``pivot``, because newer versions of pandas require
    them."""
    for call in failure.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "pivot":
            for name, argument in zip(("index", "columns", "values"), call.args, strict=False):
                start = failure.span(argument)[0]
                yield (start, start, f"{name}=")


def _positions(failure: FailedProgram, found: re.Match[str]) -> Iterator[Edit]:
    """Yield edits for an access by position to a series or table whose labels are not positions: ``x[0]`` becomes
    ``x.iloc[0]``, and ``t.corr()[0, 1]`` becomes ``t.corr().iloc[0, 1]``."""
    described = set(re.findall(r"^(?:Columns|Keys) of ([^:\n]+):", failure.text, re.MULTILINE))
    for node in failure.failed:
        is_position = isinstance(node, ast.Subscript) and ast.unparse(node.slice) == found[1]
        if isinstance(node, ast.Subscript) and is_position and failure.source(node.value) not in described:
            end = failure.span(node.value)[1]
            yield (end, end, ".iloc")


def _scalars(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that remove the index after a variable that holds a single number: ``statistic[0]`` becomes
    ``statistic``."""
    for node in failure.failed:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and is_integer(node.slice):
            yield (failure.span(node.value)[1], failure.span(node)[1], "")


def _unpacking(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that add ``*_`` to a tuple assignment that has fewer names than there are values."""
    targets = [target for node in failure.nodes if isinstance(node, ast.Assign) for target in node.targets]
    for target in targets:
        if isinstance(target, ast.Tuple) and target in failure.failed and isinstance(target.elts[-1], ast.Name):
            end = failure.span(target.elts[-1])[1]
            yield (end, end, ", *_")


def _days(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that convert a difference of dates to a number of days before a whole number is added to it or
    subtracted from it."""
    for node in failure.failed:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and is_integer(node.right):
            end = failure.span(node.left)[1]
            # The node of ``(a - b)`` ends before the closing parenthesis; ``.dt.days`` is inserted after it.
            closing = re.match(r"\s*\)", failure.code[end:])
            yield (end + (closing.end() if closing else 0),) * 2 + (".dt.days",)
            return


def _largest_value(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits for a call such as ``max(values, key=abs)``, in which ``values`` is a dictionary, after which the
    call compares the values of the dictionary and not its keys, which are text."""
    for call in failure.calls:
        names = [one for one in call.args if isinstance(one, ast.Name)]
        keys = [one.value for one in call.keywords if one.arg == "key" and ast.unparse(one.value) == "abs"]
        if ast.unparse(call.func) in ("max", "min", "sorted") and names and keys:
            yield (*failure.span(keys[0]), f"lambda key: abs({names[0].id}[key])")


def _time_zones(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that convert times with a time zone to another zone, in place of giving them a zone again."""
    for node in failure.failed:
        if isinstance(node, ast.Attribute) and node.attr == "tz_localize":
            yield (failure.span(node.value)[1], failure.span(node)[1], ".tz_convert")


def _largest_of_groups(failure: FailedProgram, _: re.Match[str]) -> Iterator[Edit]:
    """Yield edits that replace ``t.groupby(k).nlargest(3, 'c')``, which only a column of groups has, by the first three
    rows of each group of the sorted table."""
    for call in failure.calls:
        if match := OF_GROUPS.fullmatch(failure.source(call)):
            order = f"sort_values({match['column']}, ascending={match['end'] == 'smallest'})"
            yield (*failure.span(call), f"{match['table']}.{order}.groupby({match['key']}).head({match['count']})")


RULES: tuple[tuple[re.Pattern[str], Callable[[FailedProgram, re.Match[str]], Iterator[Edit]]], ...] = (
    (re.compile(r"\ANameError: name '(\w+)' is not defined"), _names),
    (re.compile(r"\AKeyError|object has no attribute '(\w+)'"), _labels),
    (re.compile(r"\AKeyError: \"(\[.+\]) not in index\""), _variables_as_columns),
    (re.compile(r"Invalid frequency: (?P<old>\w+)\. Did you mean (?P<new>\w+)\?"), _frequency),
    (re.compile(r"'(?P<old>\w+)' is no longer supported for offsets\. Please use '(?P<new>\w+)' instead"), _frequency),
    (re.compile(r"for Period, please use '(?P<new>\w+)' instead of '(?P<old>\w+)'"), _frequency),
    (re.compile(r"Already tz-aware, use tz_convert to convert"), _time_zones),
    (re.compile(r"'DataFrameGroupBy' object has no attribute 'n(?:largest|smallest)'"), _largest_of_groups),
    (re.compile(r"has no attribute '(\w+)'|`np\.(\w+)` was removed"), _removed_names),
    (re.compile(r"got an unexpected keyword argument '(\w+)'"), _options),
    (NOT_A_NUMBER, _numbers_in_text),
    (NUMERIC_ONLY, _numeric_only),
    (re.compile(r"Can only use \.(dt|str) accessor"), _accessors),
    (re.compile(r"Only valid with DatetimeIndex"), _date_index),
    (re.compile(rf"Index' object has no attribute '(?:{DATE_PART.pattern})'"), _date_column),
    (re.compile(r"time data [\s\S]*doesn't match format"), _date_formats),
    (re.compile(r"The truth value of a (?:Series|DataFrame) is ambiguous"), _conditions),
    (re.compile(r"Invalid comparison between dtype=(datetime64|str|object)\S* and (int|float|date)"), _comparisons),
    (re.compile(r"Cannot convert non-finite values"), _missing_integers),
    (re.compile(r"DataFrame\.pivot\(\) takes 1 positional argument"), _pivot),
    (re.compile(r"\AKeyError: (-?\d+\b|\(-?\d+, -?\d+\))"), _positions),
    (re.compile(r"invalid index to scalar variable|'(?:float|int)' object is not subscriptable"), _scalars),
    (re.compile(r"too many values to unpack"), _unpacking),
    (re.compile(r"integer-arrays with TimedeltaArray"), _days),
    (re.compile(r"bad operand type for abs\(\): 'str'"), _largest_value),
)
"""The pattern of the error that each rule corrects, and the rule, in the order in which they are tried. The first rule
that has a correction is used."""
