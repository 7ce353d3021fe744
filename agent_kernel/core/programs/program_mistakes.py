"""Rewrites statements of a program that newer versions of pandas run without an effect, or that Python reads in another
way than their author means. None of them ends with an error. The functions have no side effects.

- Since pandas 3 a column is a copy: ``t['a'].fillna(0, inplace=True)`` and ``t[t['a'] > 1]['b'] = 2`` change nothing.
- No value of a column equals ``None`` or ``np.nan``, not even a missing one.
- ``&`` and ``|`` bind more strongly than comparisons: ``t['a'] > 1 & t['b'] < 2`` compares with ``1 & t['b']``.
- ``&`` binds more strongly than ``|``: ``(t['a'] == 1) | (t['a'] == 2) & (t['b'] > 3)`` has rows with any ``b``.
- ``fillna`` with one value for each group finds no group, because it looks for the labels of rows.
- No date equals a whole number: ``t['day'] == 2017`` is true of no row.
- Tests of SciPy return nan for a column with a missing value, and ``ttest_ind(a.mean(), b.mean())`` for any values.
- The results of a test have a fixed order: ``chi2, dof, p, _ = chi2_contingency(...)`` names the p-value ``dof``.
- ``t.isna().sum().sum()`` is the number of missing values, not of rows with one; ``len(outliers)`` of a condition is
  the number of all rows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agent_kernel.core.programs.program_edits import REDUCTIONS, YEARS, Edit, ParsedProgram, apply_all

IN_PLACE = frozenset({"fillna", "replace", "clip", "ffill", "bfill", "interpolate", "where", "mask"})
"""Methods of a column whose argument ``inplace`` has no effect on its table."""
COUNTS = frozenset({"sum", "mean", "any", "all"})
SAMPLES = {
    "shapiro": 1,
    "normaltest": 1,
    "jarque_bera": 1,
    "skew": 1,
    "kurtosis": 1,
    "kstest": 1,
    "ttest_1samp": 1,
    "ttest_ind": 2,
    "mannwhitneyu": 2,
    "ks_2samp": 2,
    "levene": 2,
    "bartlett": 2,
}
"""Functions of scipy.stats, with the number of their first arguments that are independent samples."""
PAIRED = frozenset({"pearsonr", "spearmanr", "kendalltau", "ttest_rel", "wilcoxon", "linregress"})
"""Functions of scipy.stats whose first two arguments are columns of the same rows."""
PROBABILITY = re.compile(r"p|p_?val(?:ue)?s?|\w+_p|\w*p_?val(?:ue)?\w*", re.IGNORECASE)
"""Matches the name of a variable for a p-value."""
FREEDOM = re.compile(r"dof|df|ddof|\w*degrees\w*", re.IGNORECASE)
"""Matches the name of a variable for degrees of freedom."""


def rewrite_mistakes(code: str) -> str:
    """Return the program with these mistakes corrected; the program itself if it has none or is no Python."""
    rules = (
        _in_place,
        _chained_assignment,
        _missing_values,
        _group_values,
        _comparisons_first,
        _counted_last,
        _alternatives_first,
        _years,
        _samples_of_means,
        _complete_samples,
        _complete_pairs,
        _result_order,
        _rows_with_gaps,
        _number_of_outliers,
    )
    return apply_all(code, rules)


def _in_place(program: ParsedProgram) -> Iterator[Edit]:
    """A column that a method changes in place is assigned instead."""
    for node in program.nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        column, method = call.func.value, call.func.attr
        flags = [one.value for one in call.keywords if one.arg == "inplace"]
        if flags and _is_column(column) and method in IN_PLACE and ast.unparse(flags[0]) == "True":
            place, others = program.source(column), ", ".join(program.arguments(call, without=("inplace",)))
            yield (*program.span(call), f"{place} = {place}.{method}({others})")


def _chained_assignment(program: ParsedProgram) -> Iterator[Edit]:
    """``t[rows]['a'] = x`` and ``t['a'][rows] = x`` set values by ``t.loc``."""
    targets = [target for node in program.nodes if isinstance(node, ast.Assign) for target in node.targets]
    for target in targets:
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Subscript):
            continue
        inner = target.value
        rows, column = (target.slice, inner.slice) if _is_column(inner) else (inner.slice, target.slice)
        label = isinstance(column, ast.Constant) and isinstance(column.value, str)
        if label and isinstance(inner.value, ast.Name) and _is_condition(rows):
            parts = (program.source(inner.value), program.source(rows), program.source(column))
            yield (*program.span(target), "{}.loc[{}, {}]".format(*parts))


def _missing_values(program: ParsedProgram) -> Iterator[Edit]:
    """Rows are selected by comparing a column of their table with a missing value, to which nothing is equal. Outside
    of such a selection, ``record['a'] == None`` may compare one value."""
    for selection in program.expressions:
        if not isinstance(selection, ast.Subscript):
            continue
        table = selection.value.value if isinstance(selection.value, ast.Attribute) else selection.value
        for node in ast.walk(selection.slice) if isinstance(table, ast.Name) else ():
            if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not _is_column(node.left):
                continue
            missing = ast.unparse(node.comparators[0]) in ("None", "np.nan", "pd.NA", "float('nan')")
            method = {ast.Eq: "isna", ast.NotEq: "notna"}.get(type(node.ops[0]))
            if missing and method and program.source(node.left).startswith(f"{ast.unparse(table)}["):
                yield (*program.span(node), f"{program.source(node.left)}.{method}()")


def _group_values(program: ParsedProgram) -> Iterator[Edit]:
    """A column is filled with the value of the group of each row."""
    for node in program.expressions:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "fillna":
            continue
        value = node.args[0] if node.args else None
        if not _is_column(node.func.value) or not isinstance(value, ast.Call) or value.args or value.keywords:
            continue
        if isinstance(value.func, ast.Attribute) and value.func.attr in REDUCTIONS and _is_grouped(value.func.value):
            start, end = program.span(value.func.value)[1], program.span(value)[1]
            yield (start, end, f".transform({value.func.attr!r})")


def _comparisons_first(program: ParsedProgram) -> Iterator[Edit]:
    """``a > x & b < y`` becomes ``(a > x) & (b < y)``."""
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


def _counted_last(program: ParsedProgram) -> Iterator[Edit]:
    """``(a < x) | (b > y).sum()`` becomes ``((a < x) | (b > y)).sum()``."""
    for node in program.expressions:
        sign = {ast.BitAnd: "&", ast.BitOr: "|"}.get(type(node.op)) if isinstance(node, ast.BinOp) else None
        if not sign or not isinstance(node, ast.BinOp) or not isinstance(call := node.right, ast.Call):
            continue
        compares = isinstance(node.left, ast.Compare) and isinstance(call.func, ast.Attribute)
        if compares and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Compare):
            both = f"({program.source(node.left)}) {sign} ({program.source(call.func.value)})"
            if call.func.attr in COUNTS:
                yield (*program.span(node), f"({both}).{call.func.attr}({', '.join(program.arguments(call))})")


def _alternatives_first(program: ParsedProgram) -> Iterator[Edit]:
    """``(a == x) | (a == y) & c`` and ``c & (a == x) | (a == y)`` become ``((a == x) | (a == y)) & c``: two values of
    one column are alternatives. A program with parentheses around the ``&`` means it."""
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


def _years(program: ParsedProgram) -> Iterator[Edit]:
    """A column of dates is compared with a year by the year of its dates."""
    dates = set(_date_columns(program))
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


def _date_columns(program: ParsedProgram) -> Iterator[str]:
    """Yield the expressions of the columns that the program reads as dates, or converts to dates."""
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        call = node.value if isinstance(node, ast.Assign) else None
        if target is None or not isinstance(call, ast.Call):
            continue
        if isinstance(target, ast.Name):
            parsed = (one.value for one in call.keywords if one.arg == "parse_dates")
            labels = (one for value in parsed if isinstance(value, ast.List) for one in value.elts)
            yield from (f"{target.id}[{program.source(label)}]" for label in labels)
        elif _is_column(target) and ast.unparse(call.func) == "pd.to_datetime":
            yield program.source(target)


def _is_year(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value in YEARS


def _tests(program: ParsedProgram) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of functions of scipy.stats, each with the function's name."""
    for node in program.expressions:
        if isinstance(node, ast.Call):
            module, _, name = ast.unparse(node.func).rpartition(".")
            if module in ("", "stats", "scipy.stats"):
                yield name, node


def _samples_of_means(program: ParsedProgram) -> Iterator[Edit]:
    """A test of two means tests the values of which they are the means."""
    means: dict[str, ast.expr] = {}
    for node in program.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "round":
                value = value.func.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "mean":
                means[node.targets[0].id] = value.func.value
    for name, call in _tests(program):
        samples = call.args[:2] if SAMPLES.get(name) == 2 else []
        if samples and all(isinstance(one, ast.Name) and one.id in means for one in samples):
            yield from ((*program.span(one), program.source(means[ast.unparse(one)])) for one in samples)


def _complete_samples(program: ParsedProgram) -> Iterator[Edit]:
    """A test gets the values of a column that are not missing."""
    for name, call in _tests(program):
        for sample in call.args[: SAMPLES.get(name, 0)]:
            if _is_column(sample) or _is_selected_column(sample):
                yield (program.span(sample)[1],) * 2 + (".dropna()",)


def _complete_pairs(program: ParsedProgram) -> Iterator[Edit]:
    """A test of two columns of one table gets the rows that have a value in both."""
    for name, call in _tests(program):
        pair = call.args[:2] if name in PAIRED else []
        if len(pair) < 2 or not all(map(_is_column, pair)):
            continue
        tables = {ast.unparse(one.value) for one in pair if isinstance(one, ast.Subscript)}
        labels = [program.source(one.slice) for one in pair if isinstance(one, ast.Subscript)]
        complete = re.search(r"\bdropna\(|\bfillna\(", program.code)
        if len(tables) == 1 and not complete:
            rows = f"{tables.pop()}.dropna(subset=[{', '.join(labels)}])"
            yield from ((*program.span(one), f"{rows}[{label}]") for one, label in zip(pair, labels, strict=True))


def _result_order(program: ParsedProgram) -> Iterator[Edit]:
    """The names for the results of a test stand in the order of the results."""
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Tuple) or not isinstance(call, ast.Call):
            continue
        names = [program.source(one) for one in target.elts]
        function = ast.unparse(call.func).rpartition(".")[2]
        first = [one for one in names if not PROBABILITY.fullmatch(one) and not FREEDOM.fullmatch(one)]
        probability = [one for one in names if PROBABILITY.fullmatch(one)]
        freedom = [one for one in names if FREEDOM.fullmatch(one)]
        if len(probability) != 1 or not first:
            continue
        if function == "chi2_contingency" and len(names) in (3, 4) and len(freedom) == 1:
            meant = [first[0], *probability, *freedom, *(first[1:] or ["_"])]
        elif function in PAIRED | set(SAMPLES) - {"skew", "kurtosis"} and len(names) == 2 and function != "linregress":
            meant = [first[0], *probability]
        else:
            continue
        if meant != names:
            yield (*program.span(target), ", ".join(meant))


def _rows_with_gaps(program: ParsedProgram) -> Iterator[Edit]:
    """A variable for rows with a missing value is the number of these rows."""
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Name) or "row" not in target.id.lower() or not isinstance(node, ast.Assign):
            continue
        match = re.fullmatch(r"(.+\.(?:isna|isnull)\(\))\.sum\(\)\.sum\(\)", program.source(node.value))
        if match:
            yield (*program.span(node.value), f"{match[1]}.any(axis=1).sum()")


def _number_of_outliers(program: ParsedProgram) -> Iterator[Edit]:
    """The number of outliers is the number of rows of which the condition is true, not the length of the condition."""
    conditions = {
        node.targets[0].id
        for node in program.nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_condition(node.value)
    }
    for node in program.expressions:
        name = ast.unparse(node.args[0]) if isinstance(node, ast.Call) and len(node.args) == 1 else ""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and name in conditions and "outlier" in name:
            yield (*program.span(node), f"{name}.sum()")


def _is_selected_column(node: ast.expr) -> bool:
    """Return whether the expression is a column of selected rows: ``t[t['a'] > 1]['b']``, ``t.loc[rows, 'b']``."""
    if not isinstance(node, ast.Subscript):
        return False
    if isinstance(node.slice, ast.Tuple):
        last = node.slice.elts[-1]
        return (
            ast.unparse(node.value).endswith(".loc") and isinstance(last, ast.Constant) and isinstance(last.value, str)
        )
    if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return isinstance(node.value, ast.Subscript) and _is_condition(node.value.slice)
    return _is_column(node.value) and _is_condition(node.slice)


def _is_label(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _compared_column(node: ast.expr) -> str:
    """Return the expression that is compared with one value; an empty string if there is none."""
    is_equal = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)
    return ast.unparse(node.left) if isinstance(node, ast.Compare) and is_equal else ""


def _is_column(node: ast.expr) -> bool:
    """Return whether the expression is a column of a variable: ``t['a']``."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and _is_label(node.slice)


def _is_condition(node: ast.expr) -> bool:
    """Return whether the expression compares, so that it selects rows: an index may be a sum, ``names['a'][i + 1]``."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr)
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert))


def _is_grouped(node: ast.expr) -> bool:
    """Return whether the expression is a column of groups: ``t.groupby('a')['b']``."""
    call = node.value if isinstance(node, ast.Subscript) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "groupby"
