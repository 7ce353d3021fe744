"""Rewrites statements that compute another statistic than their author means, and that end with no error. The functions
have no side effects.

- Tests of SciPy return nan for a column with a missing value, and ``ttest_ind(a.mean(), b.mean())`` for any values.
- The results of a test have a fixed order: ``chi2, dof, p, _ = chi2_contingency(...)`` names the p-value ``dof``.
- ``t.isna().sum().sum()`` is the number of missing values, not of rows with one.
- ``len(outliers)`` of a condition is the number of all rows.
- Once they are removed or filled in, there are no duplicate rows and no missing values to count.
- ``model.coef_[0]`` is the coefficient of the first column.
- ``a + b.mean()`` is no mean: ``mean_total = t['a'] + t['b'].mean()``.
- The score of a regression is R squared, and its square root is not the error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from agent_kernel.core.programs.program_edits import REDUCTIONS, Edit, ParsedProgram, is_column, is_condition, is_label

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
REMOVED = re.compile(r"\w*(?:fill|imput|interpolat|replac|remov|dropp|duplicat)\w*", re.IGNORECASE)
LEFT = re.compile(r"after|left|remain|still|now", re.IGNORECASE)
"""Matches and finds words in the name of a number of things that were removed, and of a number of those left."""
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
PAIRED = frozenset({"pearsonr", "spearmanr", "kendalltau", "ttest_rel", "wilcoxon", "linregress"})
"""Functions of scipy.stats whose first two arguments are columns of the same rows."""
PROBABILITY = re.compile(r"p|p_?val(?:ue)?s?|\w+_p|\w*p_?val(?:ue)?\w*", re.IGNORECASE)
"""Matches the name of a variable for a p-value."""
FREEDOM = re.compile(r"dof|df|ddof|\w*degrees\w*", re.IGNORECASE)
"""Matches the name of a variable for degrees of freedom."""


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
            if is_column(sample) or _is_selected_column(sample):
                yield (program.span(sample)[1],) * 2 + (".dropna()",)


def _complete_pairs(program: ParsedProgram) -> Iterator[Edit]:
    """A test of two columns of one table gets the rows that have a value in both."""
    for name, call in _tests(program):
        pair = call.args[:2] if name in PAIRED else []
        if len(pair) < 2 or not all(map(is_column, pair)):
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
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_condition(node.value)
    }
    for node in program.expressions:
        name = ast.unparse(node.args[0]) if isinstance(node, ast.Call) and len(node.args) == 1 else ""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and name in conditions and "outlier" in name:
            yield (*program.span(node), f"{name}.sum()")


def _counted_before(program: ParsedProgram) -> Iterator[Edit]:
    """A statement that counts the duplicate rows of a table, or the missing values of a column, stands in front of the
    statement that removes them or fills them in, if its variable is named after what was removed."""
    body = program.statements
    for at, node in enumerate(body):
        code = program.source(node)
        count = COUNT.fullmatch(code) if isinstance(node, ast.Assign) else None
        if count is None or not REMOVED.fullmatch(count["name"]) or LEFT.search(count["name"]):
            continue
        place = next(one for one in count.groups()[1:] if one)
        name = re.escape(place)
        change = rf"{name} ?= ?.*\.(?:{FILLS})\(.*" if count["column"] else rf"{name} ?= ?{name}\.drop_duplicates\(.*"
        in_place = rf"{name}\.(?:{FILLS if count['column'] else 'drop_duplicates'})\(.*\binplace ?= ?True\)"
        earlier = [one for one in body[:at] if re.fullmatch(f"{change}|{in_place}", program.source(one), re.DOTALL)]
        if len(earlier) == 1:
            start, end = program.span(node)
            first = program.span(earlier[0])[0]
            yield (start, min(end + 1, len(program.code)), "")
            yield (first, first, f"{code}\n")


def _coefficients(program: ParsedProgram) -> Iterator[Edit]:
    """A variable that is named after a column of a model's data is the coefficient of that column."""
    lists = [node for node in program.expressions if isinstance(node, ast.List) and len(node.elts) > 1]
    labels = [[one.value for one in node.elts if isinstance(one, ast.Constant)] for node in lists if _has_labels(node)]
    columns = {tuple(map(str, one)) for one in labels}
    for node in program.nodes if len(columns) == 1 else ():
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        match = COEFFICIENT.search(program.source(node.value)) if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Name) or not isinstance(node, ast.Assign) or match is None:
            continue
        (features,) = columns
        named = [
            at
            for at, label in enumerate(features)
            if len(_letters(label)) > 2 and _letters(label) in _letters(target.id)
        ]
        if len(named) == 1 and int(match[1]) != named[0]:
            start = program.span(node.value)[0]
            yield (start + match.start(1), start + match.end(1), str(named[0]))


def _root_mean_squared_error(program: ParsedProgram) -> Iterator[Edit]:
    """A variable for the RMSE gets the root of the mean squared error, not that of the model's score."""
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Name) or "rmse" not in target.id.lower() or not isinstance(node, ast.Assign):
            continue
        for call in (one for one in ast.walk(node.value) if isinstance(one, ast.Call) and len(one.args) == 2):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "score":
                data, truth = map(program.source, call.args)
                error = f"mean_squared_error({truth}, {program.source(call.func.value)}.predict({data}))"
                yield (*program.span(call), error)


def _mean_of_a_sum(program: ParsedProgram) -> Iterator[Edit]:
    """A variable named after a reduction gets that of the whole expression, not of its last column."""
    for node in program.nodes:
        value = node.value if isinstance(node, ast.Assign) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(value, ast.BinOp) or not isinstance(target, ast.Name) or not is_column(value.left):
            continue
        call = value.right
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_column(call.func.value):
            method = call.func.attr
            if method in REDUCTIONS and method in target.id.lower() and isinstance(value.op, ast.Add | ast.Sub):
                operation = program.code[program.span(value)[0] : program.span(call.func.value)[1]]
                yield (*program.span(value), f"({operation}).{method}({', '.join(program.arguments(call))})")


def _has_labels(node: ast.List) -> bool:
    return all(map(is_label, node.elts))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


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
        return isinstance(node.value, ast.Subscript) and is_condition(node.value.slice)
    return is_column(node.value) and is_condition(node.slice)


def with_named_functions(code: str, question: str) -> str:
    """Return the code with ``stats.skew(c)`` in place of ``c.skew()``, and the same for the kurtosis, if the question
    names the function of SciPy: its results are biased by default, those of pandas are not."""
    program = ParsedProgram(code)
    edits: list[Edit] = []
    for method, function in (("skew", "skew"), ("kurt", "kurtosis"), ("kurtosis", "kurtosis")):
        for node in program.expressions if f"scipy.stats.{function}" in question else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
                column = node.func.value
                if not node.args and not node.keywords and ast.unparse(column) not in ("stats", "scipy.stats"):
                    edits.append((*program.span(node), f"stats.{function}({program.source(column)}.dropna())"))
    return program.apply_edits(edits) or code


RULES: tuple[Callable[[ParsedProgram], Iterator[Edit]], ...] = (
    _samples_of_means,
    _complete_samples,
    _complete_pairs,
    _result_order,
    _rows_with_gaps,
    _number_of_outliers,
    _counted_before,
    _coefficients,
    _root_mean_squared_error,
    _mean_of_a_sum,
)
