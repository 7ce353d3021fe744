"""Rewrites statements of a program that newer versions of pandas run without an effect, or that Python reads in
another way than their author means. Few of these statements raise an error. The functions have no side effects.
``program_rules`` has their order and reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agent_kernel.core.programs.program_edits import (
    REDUCTIONS,
    YEARS,
    Edit,
    ParsedProgram,
    date_columns,
    is_column,
    is_condition,
    is_label,
)

IN_PLACE = frozenset({"fillna", "replace", "clip", "ffill", "bfill", "interpolate", "where", "mask"})
"""Methods of a column whose argument ``inplace`` has no effect on its table."""
RETURNS_COPY = frozenset({"dropna", "drop_duplicates", "rename", "astype"})
"""Methods that return a changed copy of a table or a column. ``fillna`` is left out: a program that fills
missing values without being asked to computes another mean."""
PER_HOUR = re.compile(r"(?:_|\b)(?:kmh|km_h|kph|mph|per_h(?:our)?)\b|kmh$", re.IGNORECASE)
"""Finds the unit in the name of a value per hour."""
SHORT_TIMES = (
    (re.compile(r"(?:_|\b)min(?:ute)?s?(?:_|\b)", re.IGNORECASE), 60),
    (re.compile(r"(?:_|\b)s(?:ec(?:ond)?s?)?(?:_|\b)", re.IGNORECASE), 3600),
)
"""Patterns for the unit in the name of a duration, with the number of these units in an hour."""
GROUPS_BY = frozenset({"groupby", "pivot_table", "pivot"})
"""Methods of a table whose arguments may be the labels of columns."""
PART_OF_DATE = re.compile(
    r"(?P<column>[^'\"\\]+?)\.dt\.(?P<part>year|quarter|month|week|day|hour|dayofweek|day_name\(\)|to_period\(['\"]\w['\"]\))"
)
"""Matches a part of the dates of a column that is written as a label."""
SMALLER_UNITS = tuple(
    (
        re.compile(rf"(?:_|\b)(?:per|pro)[_ ](?:{unit})(?:_|\b)", re.IGNORECASE),
        re.compile(rf"(?:_|\b)(?:{smaller})(?:_|\b)", re.IGNORECASE),
        factor,
    )
    for unit, smaller, factor in (
        ("kg", r"g|grams?|gr", 1000),
        ("km", r"m|met(?:er|re)s?", 1000),
        ("l|lit(?:er|re)", r"ml|millilit(?:er|re)s?", 1000),
        ("h|hour|hr", r"min|mins|minutes?", 60),
    )
)
"""Patterns for the name of a value per unit and for the name of an amount in a smaller unit, with the number of smaller
ones in the unit."""
CONVERTS_UNITS = re.compile(r"\b(?:60|3600|1000|1_000|1e3|0\.001)\b")
"""Finds a number with which a program converts units."""
SCALES = (
    (re.compile(r"(?:[_ (]m|[_ (]mio|[_ (]mn|millions?)\)?$", re.IGNORECASE), ("1000000", "1e6", "10**6", "10 ** 6")),
    (re.compile(r"(?:[_ (]k|thousands?|[_ (]tsd)\)?$", re.IGNORECASE), ("1000", "1e3", "10**3", "10 ** 3")),
)
"""Patterns for the labels of columns with values in millions and in thousands, with these numbers as code writes
them."""
COUNTS = frozenset({"sum", "mean", "any", "all"})


def in_place(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace a method that changes a column in place by an assignment to the column."""
    for node in program.nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        column, method = call.func.value, call.func.attr
        flags = [one.value for one in call.keywords if one.arg == "inplace"]
        if flags and is_column(column) and method in IN_PLACE and ast.unparse(flags[0]) == "True":
            place, others = program.source(column), ", ".join(program.arguments(call, without=("inplace",)))
            yield (*program.span(call), f"{place} = {place}.{method}({others})")


def dropped_gaps(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``t['a'] = t['a'].dropna()`` by a statement that removes the rows."""
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and target is not None and is_column(target):
            column, table = program.source(target), program.source(target.value)
            if program.source(node.value) == f"{column}.dropna()":
                yield (*program.span(node), f"{table} = {table}.dropna(subset=[{program.source(target.slice)}])")


def discarded_results(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that assign the result of a statement such as ``t.dropna()`` to the table or the column. The last
    statement of a program is excepted, because its result is shown."""
    for node in program.statements[:-1]:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        place = call.func.value
        is_place = isinstance(place, ast.Name) or is_column(place)
        if is_place and call.func.attr in RETURNS_COPY and not any(one.arg == "inplace" for one in call.keywords):
            yield (*program.span(call), f"{program.source(place)} = {program.source(call)}")


def chained_assignment(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``t[rows]['a'] = x`` and ``t['a'][rows] = x`` by an assignment with ``t.loc``."""
    targets = [target for node in program.nodes if isinstance(node, ast.Assign) for target in node.targets]
    for target in targets:
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Subscript):
            continue
        inner = target.value
        rows, column = (target.slice, inner.slice) if is_column(inner) else (inner.slice, target.slice)
        if is_label(column) and isinstance(inner.value, ast.Name) and is_condition(rows):
            parts = (program.source(inner.value), program.source(rows), program.source(column))
            yield (*program.span(target), "{}.loc[{}, {}]".format(*parts))


def missing_values(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace a comparison with a missing value by ``isna`` or ``notna`` if it selects rows of a
    table: nothing equals a missing value. Other comparisons stay, since ``record['a'] == None`` may compare a single
    value."""
    for selection in program.expressions:
        if not isinstance(selection, ast.Subscript):
            continue
        table = selection.value.value if isinstance(selection.value, ast.Attribute) else selection.value
        for node in ast.walk(selection.slice) if isinstance(table, ast.Name) else ():
            if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not is_column(node.left):
                continue
            missing = ast.unparse(node.comparators[0]) in ("None", "np.nan", "pd.NA", "float('nan')")
            method = {ast.Eq: "isna", ast.NotEq: "notna"}.get(type(node.ops[0]))
            if missing and method and program.source(node.left).startswith(f"{ast.unparse(table)}["):
                yield (*program.span(node), f"{program.source(node.left)}.{method}()")


def group_values(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits after which the program fills missing values of a column with the value of the row's group:
    ``.transform('mean')`` replaces ``.mean()``."""
    for node in program.expressions:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "fillna":
            continue
        value = node.args[0] if node.args else None
        if not is_column(node.func.value) or not isinstance(value, ast.Call) or value.args or value.keywords:
            continue
        if isinstance(value.func, ast.Attribute) and value.func.attr in REDUCTIONS and _is_grouped(value.func.value):
            start, end = program.span(value.func.value)[1], program.span(value)[1]
            yield (start, end, f".transform({value.func.attr!r})")


def comparisons_first(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that add the missing parentheses to ``a > x & b < y``, so that it becomes ``(a > x) & (b < y)``."""
    for node in program.expressions:
        middle = node.comparators[0] if isinstance(node, ast.Compare) and len(node.ops) == 2 else None
        if not isinstance(node, ast.Compare) or not isinstance(middle, ast.BinOp):
            continue
        sign = {ast.BitAnd: "&", ast.BitOr: "|"}.get(type(middle.op))
        before, after = program.span(node)[0], program.span(node)[1]
        first = program.code[before : program.span(middle.left)[1]]
        second = program.code[program.span(middle.right)[0] : after]
        if sign and first.count("(") == first.count(")") and second.count("(") == second.count(")"):
            yield (before, after, f"({first}) {sign} ({second})")


def counted_last(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that apply a count to the whole condition: ``(a < x) | (b > y).sum()`` becomes ``((a < x) | (b >
    y)).sum()``."""
    for node in program.expressions:
        sign = {ast.BitAnd: "&", ast.BitOr: "|"}.get(type(node.op)) if isinstance(node, ast.BinOp) else None
        if not sign or not isinstance(node, ast.BinOp) or not isinstance(call := node.right, ast.Call):
            continue
        compares = isinstance(node.left, ast.Compare) and isinstance(call.func, ast.Attribute)
        if compares and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Compare):
            both = f"({program.source(node.left)}) {sign} ({program.source(call.func.value)})"
            if call.func.attr in COUNTS:
                yield (*program.span(node), f"({both}).{call.func.attr}({', '.join(program.arguments(call))})")


def alternatives_first(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``(a == x) | (a == y) & c`` and ``c & (a == x) | (a == y)`` by ``((a == x) | (a == y)) &
    c``, because two values of one column are alternatives. Parentheses around the ``&`` show that the author wants the
    ``&`` first; such a program stays unchanged."""
    for node in program.expressions:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
            continue
        start, end = program.span(node)
        for both, single in ((node.right, node.left), (node.left, node.right)):
            if not isinstance(both, ast.BinOp) or not isinstance(both.op, ast.BitAnd):
                continue
            near, far = (both.left, both.right) if both is node.right else (both.right, both.left)
            first, last = program.span(both)
            is_bare = last == end if both is node.right else first == start
            column = _compared_column(near)
            if is_bare and column and column == _compared_column(single) != _compared_column(far):
                one, other, condition = (f"({program.source(part)})" for part in (single, near, far))
                yield (start, end, f"({one} | {other}) & {condition}")


def row_of_extreme(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``t[t['a'].idxmax()]``, which looks for a column, by ``t.loc[t['a'].idxmax()]``, which
    selects the row with the largest value."""
    for node in program.expressions:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            continue
        call = node.slice
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_column(call.func.value):
            is_own = program.source(call.func.value).startswith(f"{node.value.id}[")
            if is_own and call.func.attr in ("idxmax", "idxmin"):
                yield (program.span(node.value)[1],) * 2 + (".loc",)


def columns_of_groups(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``groupby(k)['a', 'b']`` by ``groupby(k)[['a', 'b']]``."""
    for node in program.nodes:
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) < 2:
            continue
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "groupby":
            yield (*program.span(node.slice), f"[{', '.join(map(program.source, node.slice.elts))}]")


def parts_of_dates(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``t.groupby('day.dt.month')``, which looks for a column of this name, by
    ``t.groupby(t['day'].dt.month)``."""
    for call in program.nodes:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr not in GROUPS_BY or not isinstance(table := call.func.value, ast.Name):
            continue
        for node in (one for argument in [*call.args, *call.keywords] for one in ast.walk(argument)):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if isinstance(node, ast.Constant) and (match := PART_OF_DATE.fullmatch(text)):
                yield (*program.span(node), f"{table.id}[{match['column']!r}].dt.{match['part']}")


def each_group_once(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``for one in t['a']`` by ``for one in t['a'].unique()`` if the loop selects the rows
    with ``t['a'] == one``. The loop otherwise selects the same rows again for each row of the group."""
    for node in program.nodes:
        loops = node.generators if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) else [node]
        for loop in loops:
            if not isinstance(loop, ast.For | ast.comprehension) or not is_column(loop.iter):
                continue
            selects = f"{ast.unparse(loop.iter)} == {ast.unparse(loop.target)}"
            if any(isinstance(one, ast.Compare) and ast.unparse(one) == selects for one in ast.walk(node)):
                yield (program.span(loop.iter)[1],) * 2 + (".unique()",)


def values_per_hour(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that convert the duration by which a value per hour is divided, if its name says that it is in
    minutes or seconds, unless the program converts something."""
    for target, value in program.assignments if not CONVERTS_UNITS.search(program.code) else ():
        name = _label(target) or ast.unparse(target)
        if PER_HOUR.search(name) and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            label = _label(value.right)
            factor = next((factor for unit, factor in SHORT_TIMES if unit.search(label)), 0)
            if factor:
                yield (*program.span(value.right), f"({program.source(value.right)} / {factor})")


def amounts_in_smaller_units(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that convert an amount that is multiplied by a value per larger unit, as the names of the columns
    tell: ``t['grams'] * t['eur_per_kg']``. A program that converts something stays unchanged."""
    for node in program.expressions if not CONVERTS_UNITS.search(program.code) else ():
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        for amount, value in ((node.left, node.right), (node.right, node.left)):
            for per_unit, smaller, factor in SMALLER_UNITS:
                if per_unit.search(_label(value)) and smaller.search(_label(amount)):
                    yield (*program.span(amount), f"({program.source(amount)} / {factor})")


def scaled_twice(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that remove the division of a column by a million or a thousand if its label says that its values
    are already in millions or thousands."""
    for node in program.expressions:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            continue
        divisor = program.source(node.right).replace("_", "")
        labels = [_label(one) for one in ast.walk(node.left) if isinstance(one, ast.expr) and is_column(one)]
        scale = next((scale for scale, numbers in SCALES if divisor in numbers), None)
        if scale and len(labels) == 1 and scale.search(labels[0]):
            yield (*program.span(node), program.source(node.left))


def plot_of_groups(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace ``t.plot(x='a', y='b', hue='c')`` by a plot of a pivot table with a column for each
    value of ``c``. Plots of pandas have no ``hue``."""
    for call in program.expressions:
        function = call.func if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or not isinstance(function, ast.Attribute) or call.args:
            continue
        options = {one.arg: one.value for one in call.keywords}
        labels = [program.source(options[name]) for name in ("x", "hue", "y") if name in options]
        is_plot = program.source(function).endswith((".plot", ".plot.line", ".plot.bar")) and len(labels) == 3
        table = program.source(function).partition(".plot")[0]
        if is_plot and table.isidentifier() and all(is_label(options[name]) for name in ("x", "hue", "y")):
            pivot = f"{table}.pivot_table(index={labels[0]}, columns={labels[1]}, values={labels[2]}, aggfunc='sum')"
            method = program.source(function).removeprefix(table)
            others = ", ".join(program.arguments(call, without=("x", "y", "hue")))
            yield (*program.span(call), f"{pivot}{method}({others})")


def _label(node: ast.expr) -> str:
    """Return the label of the column that the expression selects; an empty string for any other expression."""
    return str(ast.literal_eval(node.slice)) if is_column(node) else ""


def years(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits after which the program compares a year with the years of a column, instead of with its dates:
    ``t['day'].dt.year == 2017``."""
    dates = set(date_columns(program))
    for node in program.expressions if dates else ():
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            column, numbers = node.left, [node.comparators[0]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "isin":
            listed = node.args[0] if node.args else None
            column = node.func.value
            numbers = listed.elts if isinstance(listed, ast.List | ast.Tuple | ast.Set) else []
        else:
            continue
        if program.source(column) in dates and numbers and all(map(_is_year, numbers)):
            yield (program.span(column)[1],) * 2 + (".dt.year",)


def _is_year(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value in YEARS


def _compared_column(node: ast.expr) -> str:
    """Return the source of the expression that ``node`` compares with one value by ``==``; an empty string if ``node``
    is anything else."""
    is_equal = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)
    return ast.unparse(node.left) if isinstance(node, ast.Compare) and is_equal else ""


def _is_grouped(node: ast.expr) -> bool:
    """Return whether the expression selects a column of groups: ``t.groupby('a')['b']``."""
    call = node.value if isinstance(node, ast.Subscript) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "groupby"
