"""Rewrites statements that compute a different statistic than their author intends. None of these statements raises an
error. The functions have no side effects. ``program_rules`` has their order and reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agent_kernel.core.programs.program_edits import (
    REDUCTIONS,
    Edit,
    ParsedProgram,
    is_column,
    is_condition,
    is_label,
    letters_of,
)

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
"""Maps each of these functions of scipy.stats to the number of its leading arguments that are independent samples."""
REMOVED = re.compile(r"\w*(?:fill|imput|interpolat|replac|remov|dropp|duplicat|before|initial)\w*", re.IGNORECASE)
"""Matches the name of a variable for the number of values or rows that were removed or filled in, or that there were
before."""
LEFT = re.compile(r"after|left|remain|still|now", re.IGNORECASE)
"""Matches a word in a name that REMOVED matches. With this word, the variable is for the number of the values or rows
that remain."""
OF_OUTLIERS = re.compile(
    r"(?!.*(?:non|not|no_|without|clean|filter|remov|exclu|drop|after|minus|inlier)).*outliers?", re.IGNORECASE
)
"""Matches the name of a variable for a value of the outliers, such as ``mean_age_outliers``."""
ADDING = frozenset({"append", "extend", "add", "update"})
"""Methods that add elements to a list or a set."""
CORRELATION_TESTS = {"pearson": "pearsonr", "spearman": "spearmanr", "kendall": "kendalltau"}
"""The methods of ``corr`` of pandas, each with SciPy's test."""
BEFORE = re.compile(r"(?:\w+_)?before(?:_(?:mean|median|std|count|n|filling|imputation|removal|removing|cleaning))?")
"""Matches the name of a value that is computed before values are filled or removed."""
ROUNDED = re.compile(r"round\((?P<value>.+), ?\d+\)")
REMOVES = "dropna|drop_duplicates|fillna"
"""Methods of a table that remove rows or fill values."""
COUNT = re.compile(
    r"(?P<name>\w+) ?= ?(?:(?P<column>\w+\[(?:'[^'\n]*'|\"[^\"\n]*\")\])\.(?:isna|isnull)\(\)\.sum\(\)"
    r"|(\w+)\.duplicated\(\)\.sum\(\)"
    r"|len\((\w+)\) ?- ?len\(\4\.drop_duplicates\(.*\)\)"
    r"|(\w+)\.shape\[0\] ?- ?\5\.drop_duplicates\(.*\)\.shape\[0\])"
)
"""Matches a statement that counts missing values of a column, or duplicate rows of a table."""
FILLS = "fillna|dropna|interpolate|[bf]fill"
"""Names of the methods after which a column has no missing values."""
COEFFICIENT = re.compile(r"\.coef_\[(\d+)\]")
"""Matches the coefficient of one column of a linear model of scikit-learn."""
PAIRED = frozenset({"pearsonr", "spearmanr", "kendalltau", "ttest_rel", "wilcoxon", "linregress"})
"""Functions of scipy.stats whose first two arguments are columns of the same rows."""
PAIRS = (PAIRED | SAMPLES.keys()) - {"skew", "kurtosis", "linregress"}
"""Functions of scipy.stats whose results are a statistic and its p-value."""
PROBABILITY = re.compile(r"p|p_?val(?:ue)?s?|\w+_p|\w*p_?val(?:ue)?\w*", re.IGNORECASE)
"""Matches the name of a variable for a p-value."""
NORMAL = re.compile(
    r"(?!.*(?:non|not_|ab_?normal|reject|deviat|differ|depart|violat))(?:\w+_)?normal(?:ity|ly)?(?:_\w+)?",
    re.IGNORECASE,
)
"""Matches the name of a value that tells whether a sample is normally distributed."""
NORMAL_SLOT = re.compile(r"@(\w+)\[\{(\w+) ?(<=?) ?(?=[\w.]+\})")
"""Matches a demanded value in an f-string that compares a variable with a number, up to this number. The name of the
value is then compared with NORMAL."""
FREEDOM = re.compile(r"dof|df|ddof|\w*degrees\w*", re.IGNORECASE)
"""Matches the name of a variable for degrees of freedom."""


def _tests(program: ParsedProgram) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of functions of scipy.stats as (name of the function, call)."""
    for node in program.expressions:
        if isinstance(node, ast.Call):
            module, _, name = ast.unparse(node.func).rpartition(".")
            if module in ("", "stats", "scipy.stats"):
                yield name, node


def samples_of_means(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that pass the values to a test of two samples, instead of their means."""
    means: dict[str, ast.expr] = {}
    for target, value in program.assignments:
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "round":
            value = value.func.value  # noqa: PLW2901  the mean that is rounded
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "mean":
            means[ast.unparse(target)] = value.func.value
    for name, call in _tests(program):
        samples = call.args[:2] if SAMPLES.get(name) == 2 else []
        if samples and all(isinstance(one, ast.Name) and one.id in means for one in samples):
            yield from ((*program.span(one), program.source(means[ast.unparse(one)])) for one in samples)


def complete_samples(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that drop the missing values of a column that is passed to a test."""
    for name, call in _tests(program):
        for sample in call.args[: SAMPLES.get(name, 0)]:
            if is_column(sample) or _is_selected_column(sample):
                yield (program.span(sample)[1],) * 2 + (".dropna()",)


def complete_pairs(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that drop the rows in which one of two values is missing, if a test compares two columns of a table.
    A program that removes or fills missing values anywhere stays unchanged."""
    removes = re.search(r"\bdropna\(|\bfillna\(", program.code)
    for name, call in _tests(program) if not removes else ():
        pair = [one for one in call.args[:2] if isinstance(one, ast.Subscript) and is_column(one)]
        tables = {ast.unparse(one.value) for one in pair}
        if name in PAIRED and len(pair) == 2 and len(tables) == 1:
            labels = [program.source(one.slice) for one in pair]
            rows = f"{tables.pop()}.dropna(subset=[{', '.join(labels)}])"
            yield from ((*program.span(one), f"{rows}[{label}]") for one, label in zip(pair, labels, strict=True))


def result_order(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that reorder the variables to which the results of a test are assigned, if their names show that the
    order is wrong."""
    for target, call in program.assignments:
        if not isinstance(target, ast.Tuple) or not isinstance(call, ast.Call):
            continue
        names = [program.source(one) for one in target.elts]
        function = ast.unparse(call.func).rpartition(".")[2]
        probability = [one for one in names if PROBABILITY.fullmatch(one)]
        freedom = [one for one in names if FREEDOM.fullmatch(one)]
        others = [one for one in names if one not in probability + freedom]
        if len(probability) != 1 or not others:
            continue
        ordered = names
        if function == "chi2_contingency" and len(names) in (3, 4) and len(freedom) == 1:
            ordered = [others[0], *probability, *freedom, *(others[1:] or ["_"])]
        elif function == "chi2_contingency" and len(names) == 2:
            ordered = [others[0], *probability, "*_"]
        elif function in PAIRS and len(names) == 2:
            ordered = [others[0], *probability]
        if ordered != names:
            yield (*program.span(target), ", ".join(ordered))


def table_without_totals(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that leave the row and the column of totals out of the table of a chi-square test."""
    tables = {ast.unparse(target): value for target, value in program.assignments}
    for name, call in _tests(program):
        table = call.args[0] if name == "chi2_contingency" and call.args else None
        table = tables.get(ast.unparse(table), table) if table else None
        if isinstance(table, ast.Call) and ast.unparse(table.func).endswith("crosstab"):
            arguments = program.arguments(table, without=("margins", "margins_name"))
            if len(arguments) < len(table.args + table.keywords):
                yield (*program.span(table), f"{program.source(table.func)}({', '.join(arguments)})")


def rows_with_gaps(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits after which the program counts rows with missing values, and not missing values, if the name of the
    variable for the number contains "row"."""
    for target, value in program.assignments:
        count = re.fullmatch(r"(.+\.(?:isna|isnull)\(\))\.sum\(\)\.sum\(\)", program.source(value))
        if isinstance(target, ast.Name) and "row" in target.id.lower() and count:
            yield (*program.span(value), f"{count[1]}.any(axis=1).sum()")


def number_of_outliers(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits after which the program counts the rows for which a condition for outliers is true, instead of all
    rows."""
    conditions = {ast.unparse(target) for target, value in program.assignments if is_condition(value)}
    for node in program.expressions:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and len(node.args) == 1:
            name = ast.unparse(node.args[0])
            if name in conditions and "outlier" in name:
                yield (*program.span(node), f"{name}.sum()")


def outliers_themselves(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that remove the negation of a condition for outliers in an assignment whose variable is named after
    the outliers: ``outliers = t[~is_outlier]`` selects all other rows."""
    conditions = {ast.unparse(target): value for target, value in program.assignments}
    for target, value in (*program.assignments, *_added_elements(program)):
        if not isinstance(target, ast.Name) or not OF_OUTLIERS.fullmatch(target.id):
            continue
        for node in ast.walk(value):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                condition = conditions.get(ast.unparse(node.operand), node.operand)
                if _is_extreme(condition):
                    start = program.span(node)[0]
                    yield (start, start + 1, "")


def _added_elements(program: ParsedProgram) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each list or set to which the program adds elements, with what it adds: ``outliers.extend(rows)``."""
    for node in program.expressions:
        method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if isinstance(node, ast.Call) and method and method.attr in ADDING and len(node.args) == 1:
            yield method.value, node.args[0]


def negated_alternatives(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that negate both alternatives of a condition for outliers: ``~(x < low) | (x > high)`` is true for
    large values."""
    for node in program.expressions:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
            continue
        low = node.left.operand if isinstance(node.left, ast.UnaryOp) and isinstance(node.left.op, ast.Invert) else None
        high = node.right
        if not isinstance(low, ast.Compare) or not isinstance(high, ast.Compare) or not _is_extreme(high):
            continue
        if isinstance(low.ops[0], ast.Lt | ast.LtE) and program.source(low.left) == program.source(high.left):
            yield (*program.span(node), f"~(({program.source(low)}) | ({program.source(high)}))")


def _is_extreme(condition: ast.expr) -> bool:
    """Return whether values outside of bounds fulfil the condition: ``z > 3``, ``(x < low) | (x > high)``."""
    if isinstance(condition, ast.BinOp):
        return isinstance(condition.op, ast.BitOr)
    return isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Gt | ast.GtE)


def counted_before(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that move a statement that counts duplicate rows or missing values before the statement that removes
    or fills them, if the name of its variable shows that the author wants to count the removed rows or values."""
    body = program.statements
    for at, node in enumerate(body):
        code = program.source(node)
        count = COUNT.fullmatch(code)
        if count is None or not REMOVED.fullmatch(count["name"]) or LEFT.search(count["name"]):
            continue
        place = re.escape(next(one for one in count.groups()[1:] if one))
        methods = FILLS if count["column"] else "drop_duplicates"
        change = rf"{place} ?= ?.*\.(?:{methods})\(.*|{place}\.(?:{methods})\(.*\binplace ?= ?True\)"
        earlier = [one for one in body[:at] if re.fullmatch(change, program.source(one), re.DOTALL)]
        if len(earlier) == 1:
            start, end = program.span(node)
            first = program.span(earlier[0])[0]
            yield (start, min(end + 1, len(program.code)), "")
            yield (first, first, f"{code}\n")


def probability_of_correlation(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that replace the p-value of a correlation of pandas, which is only a number, by that of SciPy's test:
    ``r = t['a'].corr(t['b'])`` and later ``r.pvalue``."""
    tests: dict[str, str] = {}
    for target, value in program.assignments:
        function = value.func if isinstance(value, ast.Call) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and isinstance(function, ast.Attribute):
            methods = [ast.unparse(one.value).strip("'\"") for one in value.keywords if one.arg == "method"]
            test = CORRELATION_TESTS.get(methods[0] if methods else "pearson")
            if function.attr == "corr" and is_column(function.value) and len(value.args) == 1 and test:
                pair = f"{program.source(function.value)}, {program.source(value.args[0])}"
                tests[target.id] = f"stats.{test}({pair}).pvalue"
    for node in program.expressions:
        if isinstance(node, ast.Attribute) and node.attr in ("pvalue", "p_value"):
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            yield from [(*program.span(node), tests[name])] if name in tests else []


def computed_before(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that move a statement such as ``mean_before = t['a'].mean()`` before the statement that fills or
    removes values of this column or rows of this table. The name may also mean another change, so the program must
    compute a value "after" in the same way, without a change between the two."""
    body = program.statements
    sources = [program.source(one) for one in body]
    for at, node in enumerate(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Name) or not BEFORE.fullmatch(target.id):
            continue
        inside = list(ast.walk(node.value))
        columns = {program.source(one) for one in inside if is_column(one)}
        names = {one.id for one in inside if isinstance(one, ast.Name)} - {"np", "pd", "round", "float", "int", "len"}
        if len(columns) != 1 or len(names) != 1:
            continue
        column, table = (re.escape(next(iter(one))) for one in (columns, names))
        sets = re.compile(rf"(?:{column}|{table}) ?= .*|{table}\.\w+\(.*\binplace ?= ?True\)", re.DOTALL)
        removes = re.compile(
            rf"{column} ?= ?{column}\.(?:{FILLS})\(.*|{table} ?= ?{table}\.(?:{REMOVES})\(.*"
            rf"|{table}\.(?:{REMOVES})\(.*\binplace ?= ?True\)",
            re.DOTALL,
        )
        rounded = ROUNDED.fullmatch(program.source(node.value))
        same = re.escape(rounded["value"] if rounded else program.source(node.value))
        twin = re.compile(rf"\w*after\w* ?= ?(?:{same}|round\({same}, ?\d+\))")
        changes = [number for number, text in enumerate(sources) if sets.fullmatch(text)]
        before = max((number for number in changes if number < at), default=-1)
        after = next((number for number, text in enumerate(sources) if number > at and twin.fullmatch(text)), -1)
        is_between = any(at < number < after for number in changes)
        if before >= 0 and after >= 0 and not is_between and removes.fullmatch(sources[before]):
            start, end = program.span(node)
            first = program.span(body[before])[0]
            yield (start, min(end + 1, len(program.code)), "")
            yield (first, first, f"{sources[at]}\n")


def coefficients(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits after which a variable gets the coefficient of the column after which it is named, if the program has
    exactly one list of columns."""
    lists = [node for node in program.expressions if isinstance(node, ast.List) and len(node.elts) > 1]
    columns = {tuple(ast.literal_eval(one)) for one in lists if all(map(is_label, one.elts))}
    for target, value in program.assignments if len(columns) == 1 else ():
        match = COEFFICIENT.search(program.source(value))
        if not isinstance(target, ast.Name) or match is None:
            continue
        labels = [letters_of(label) for label in next(iter(columns))]
        named = [at for at, label in enumerate(labels) if len(label) > 2 and label in letters_of(target.id)]
        if len(named) == 1 and int(match[1]) != named[0]:
            start = program.span(value)[0]
            yield (start + match.start(1), start + match.end(1), str(named[0]))


def root_mean_squared_error(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits after which the program computes the RMSE from the mean squared error, and not from the model's
    score."""
    for target, value in program.assignments:
        if not isinstance(target, ast.Name) or "rmse" not in target.id.lower():
            continue
        for call in (one for one in ast.walk(value) if isinstance(one, ast.Call) and len(one.args) == 2):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "score":
                data, truth = map(program.source, call.args)
                error = f"mean_squared_error({truth}, {program.source(call.func.value)}.predict({data}))"
                yield (*program.span(call), error)


def other_correlations(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that drop a column from its own correlations before the program takes the largest of them, because a
    column correlates with itself with 1."""
    for target, value in program.assignments:
        source = program.source(value)
        if not isinstance(target, ast.Name) or "groupby" in source or not re.search(r"\.corr\([^)]*\)$", source):
            continue
        column = rf"\b{target.id}\[('[^'\n]+'|\"[^\"\n]+\")\](?=(?:\.abs\(\))?\.(?:idxmax|max|nlargest|sort_values)\()"
        for match in re.finditer(column, program.code):
            yield (match.end(), match.end(), f".drop({match[1]})")


def mean_of_a_sum(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that apply a reduction to the sum or difference of two columns, and not only to the second column, if
    the variable is named after the reduction."""
    for target, value in program.assignments:
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add | ast.Sub) or not is_column(value.left):
            continue
        call = value.right
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_column(call.func.value):
            method = call.func.attr
            if method in REDUCTIONS and isinstance(target, ast.Name) and method in target.id.lower():
                operation = program.code[program.span(value)[0] : program.span(call.func.value)[1]]
                yield (*program.span(value), f"({operation}).{method}({', '.join(program.arguments(call))})")


def normal_by_large_probability(program: ParsedProgram) -> Iterator[Edit]:
    """Yield edits that reverse the comparison of a p-value in a value whose name says that the sample is normally
    distributed."""
    for target, value in program.assignments:
        test = value.test if isinstance(value, ast.IfExp) and _is_affirmative(value.body) else value
        if isinstance(target, ast.Name) and NORMAL.fullmatch(target.id) and isinstance(test, ast.Compare):
            is_small = isinstance(test.ops[0], ast.Lt | ast.LtE) and PROBABILITY.fullmatch(ast.unparse(test.left))
            if len(test.ops) == 1 and is_small:
                bound = program.source(test.comparators[0])
                yield (*program.span(test), f"{program.source(test.left)} > {bound}")
    for slot in NORMAL_SLOT.finditer(program.code):
        if NORMAL.fullmatch(slot[1]) and PROBABILITY.fullmatch(slot[2]):
            yield (*slot.span(3), ">")


def _is_affirmative(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).casefold() in ("yes", "true", "normal", "1")


def _is_selected_column(node: ast.expr) -> bool:
    """Return whether the expression selects a column of some rows: ``t[t['a'] > 1]['b']``, ``t.loc[rows, 'b']``."""
    if not isinstance(node, ast.Subscript):
        return False
    if isinstance(node.slice, ast.Tuple):
        return ast.unparse(node.value).endswith(".loc") and is_label(node.slice.elts[-1])
    if is_label(node.slice):
        return isinstance(node.value, ast.Subscript) and is_condition(node.value.slice)
    return is_column(node.value) and is_condition(node.slice)
