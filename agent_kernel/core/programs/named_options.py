"""Uses the functions and options that a question names, if a program computes with others: SciPy's skewness instead of
that of pandas, ``ddof=0``, ``random_state=42``. The functions have no side effects."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from agent_kernel.core.programs.program_edits import Edit, ParsedProgram, is_column
from agent_kernel.core.programs.table_facts import column_labels

OPTIONS = {
    "ddof": ("std", "var", "sem"),
    "equal_var": ("ttest_ind",),
    "correction": ("chi2_contingency",),
    "test_size": ("train_test_split",),
    "random_state": ("train_test_split", "sample", "KMeans", "DecisionTreeClassifier", "RandomForestClassifier"),
    "drop_first": ("get_dummies",),
}
"""Options that questions name, and the functions that have them. Their results differ by the option."""
OPTION = re.compile(r"\b(ddof|equal_var|correction|test_size|random_state|drop_first) ?= ?(\d+(?:\.\d+)?|True|False)\b")
"""Matches an option with its value in a question."""
OPTION_WORDS = (
    (re.compile(r"\bpopulation standard deviation\b", re.IGNORECASE), ("ddof", "0")),
    (re.compile(r"\bsample standard deviation\b", re.IGNORECASE), ("ddof", "1")),
    (re.compile(r"\bWelch\b|\bunequal variances\b", re.IGNORECASE), ("equal_var", "False")),
    (re.compile(r"\b(?:without|no)\b[^.;,\n]{0,20}\b(?:Yates|continuity)\b", re.IGNORECASE), ("correction", "False")),
)
"""Words that name an option in another way."""
ASKS_FOR_WEEKDAY = re.compile(
    r"\b(?:which|what) (?:weekday|day of the week|day do)|\bon which (?:week)?days?\b", re.IGNORECASE
)
"""Finds a question whose answer is the name of a weekday."""
WEEKDAY = re.compile(r"\.dt\.(?:weekday|dayofweek|day_of_week)\b(?!\]?\)* ?(?:[<>=!]|\.isin|\.map|\.replace))")
"""Matches the numbers of weekdays of a column, unless they are compared with numbers or replaced by names."""


def with_named_functions(code: str, question: str) -> str:
    """Return the code with ``c.skew()`` replaced by ``stats.skew(c)`` if the question names SciPy's function, and with
    ``c.kurt()`` replaced in the same way. By default, SciPy's functions return the biased estimate, and those of pandas
    the unbiased one."""
    program = ParsedProgram(code)
    edits: list[Edit] = []
    for node in program.expressions:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args + node.keywords:
            function = {"skew": "skew", "kurt": "kurtosis", "kurtosis": "kurtosis"}.get(node.func.attr)
            if function and f"scipy.stats.{function}" in question:
                edits.append((*program.span(node), f"stats.{function}({program.source(node.func.value)}.dropna())"))
    return program.apply_edits(edits) or code


def with_named_options(code: str, question: str) -> str:
    """Return the code with the options that the question names and that a call lacks or has with another value:
    ``ddof=0`` in a call of ``std``, ``equal_var=False`` in a t-test of which the question says that it is Welch's. An
    option with two values in the question is left as it is."""
    program = ParsedProgram(code)
    named = [*OPTION.findall(question), *(option for words, option in OPTION_WORDS if words.search(question))]
    values = {name: {value for other, value in named if other == name} for name, _ in named}
    edits: list[Edit] = []
    for node in program.expressions:
        if not isinstance(node, ast.Call) or any(one.arg is None for one in node.keywords):
            continue
        function = ast.unparse(node.func).rpartition(".")[2]
        given = {one.arg: one.value for one in node.keywords}
        for name, functions in OPTIONS.items():
            if function not in functions or len(values.get(name, ())) != 1:
                continue
            (value,) = values[name]
            if name not in given:
                end = program.span(node)[1] - 1
                is_first = not node.args + node.keywords
                edits.append((end, end, f"{'' if is_first else ', '}{name}={value}"))
            elif isinstance(given[name], ast.Constant) and program.source(given[name]) != value:
                edits.append((*program.span(given[name]), value))
    return program.apply_edits(edits) or code


def with_weekday_names(code: str, question: str) -> str:
    """Return the code with the names of weekdays in place of their numbers, if the question asks for a weekday. A small
    model often gives 0 or 1 the name of a wrong day."""
    has_list_of_names = re.search(r"[\[{(] *(?:0: *)?['\"]Mon(?:day)?['\"]", code)
    is_asked = ASKS_FOR_WEEKDAY.search(question) and not has_list_of_names
    return WEEKDAY.sub(".dt.day_name()", code) if is_asked else code


def with_summed_column(code: str, question: str, facts: Sequence[str]) -> str:
    """Return the code with the sums of a column in place of the numbers of rows, if the question asks for most or
    fewest of the column ("which shop sold the most units") and the code does not use its sums otherwise:
    ``t['shop'].value_counts()`` becomes ``t.groupby('shop')['units'].sum()``. ``facts`` describe the tables and files
    of the question."""
    asked = [label for label in column_labels(facts) if re.search(rf"\b(?:most|fewest) {re.escape(label)}\b", question)]
    program = ParsedProgram(code)
    counts = [
        node
        for node in program.expressions
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "value_counts"
        and not node.args + node.keywords
    ]
    if len(asked) != 1 or not counts or re.search(rf"groupby\(.*{re.escape(repr(asked[0]))}", code):
        return code
    edits: list[Edit] = []
    for call in counts:
        column = call.func.value if isinstance(call.func, ast.Attribute) else call
        if is_column(column) and ast.unparse(column.slice) != repr(asked[0]):
            table, label = program.source(column.value), program.source(column.slice)
            sums = f"{table}.groupby({label})[{asked[0]!r}].sum().sort_values(ascending=False)"
            edits.append((*program.span(call), sums))
    return program.apply_edits(edits) or code
