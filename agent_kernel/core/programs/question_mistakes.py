"""Rewrites statements that compute something else than the question asks for: with other functions, options or
ranges, with zeros in place of missing values, or under another name. ``program_rules`` has their order and reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from agent_kernel.core.programs.program_edits import (
    Edit,
    ParsedProgram,
    date_columns,
    is_column,
    is_label,
    letters_of,
)
from agent_kernel.core.programs.syntax_tree import names_set, parse_or_empty
from agent_kernel.core.programs.table_facts import MAX_QUESTION, column_labels

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
RANGE = re.compile(r"(?<![\w.,-])(\d+)(?: to | bis |-|–| à | a )(\d+)(?![\w-]|[.,]\d)")
"""Finds a range of whole numbers in a question."""
CHANGED_BY_ZEROS = re.compile(r"\.(?:mean|median|std|var|min|idxmin|quantile|describe|agg)\(")
"""Matches code that computes a statistic whose value zeros change."""
ABOUT_MISSING = re.compile(
    r"\b(?:missing|empty|blank|null|nan|none|unknown|fill\w*|zeros?|treat\w*|consider\w*|fehl\w+|leere?|manquant\w*|vides?"
    r"|faltan\w*|vac[ií]\w*)\b|\b0\b",
    re.IGNORECASE,
)
"""Finds words with which a question says what to do with missing values."""
COMPLETE_ROWS = re.compile(
    r"\b(?:any|all|every)\b(?! of (?:these|those|the (?:two|three|four|five))\b)|\b(?:in)?complete(?:ly)?\b",
    re.IGNORECASE,
)
"""Finds words with which a question may ask for rows that have a value in each column, and not only in the columns that
it lists ("in any of these columns")."""
OF_THE_SAME = re.compile(r"\b(?:of|for|by|within) the same (\w+)", re.IGNORECASE)
"""Finds a question about rows with the same value in a column, which the group names."""
SECONDS_OF = {"ms": 0.001, "s": 1, "sec": 1, "min": 60, "h": 3600, "hr": 3600, "hour": 3600, "day": 86_400}
"""Seconds of the units of time in labels and questions, without the ending of the plural."""
UNIT_OF_LABEL = re.compile(r"[_( ](ms|s|sec|min|h|hr|hour|day)(?:ond|ute)?s?\)?$", re.IGNORECASE)
"""Finds the unit of time at the end of a label: ``duration_s``, ``Time (min)``."""
DURATION = re.compile(r"(?<![\w.,-])(\d+(?:\.\d+)?)[ -]?(ms|s|sec|min|h|hr|hour|day)(?:ond|ute)?s?\b", re.IGNORECASE)
"""Finds a duration in a question: "3 hours"."""
ASKS_FOR_WEEKDAY = re.compile(
    r"\b(?:which|what) (?:weekday|day of the week|day do)|\bon which (?:week)?days?\b", re.IGNORECASE
)
"""Finds a question whose answer is the name of a weekday."""
WEEKDAY = re.compile(r"\.dt\.(?:weekday|dayofweek|day_of_week)\b(?!\]?\)* ?(?:[<>=!]|\.isin|\.map|\.replace))")
"""Matches the numbers of weekdays of a column, unless they are compared with numbers or replaced by names."""
PERCENT_OF_ACCURACY = re.compile(r"\baccuracy\b[^.?!\n]{0,60}(?:\bpercent(?:age)?\b|%)", re.IGNORECASE)
"""Finds a question that asks for an accuracy in percent."""
NEIGHBOURS = frozenset({"diff", "pct_change", "shift"})
"""Methods that compare a row with the one before it, or return the row before it."""
MOST = re.compile(r"\b(?:most|fewest) \w+", re.IGNORECASE)
NUMBERS_OF_THINGS = frozenset({"n", "count", "counts", "number", "quantity", "anzahl", "nombre"})
"""Labels, in lower case, of a column that says how many things a row stands for."""
RESULT_NAME = re.compile(
    r"\b(?:table|data ?frame|series|list|dict|array|variable|result)s? (?:called|named) [`'\"]?([A-Za-z_]\w*)"
    r"|\b(?:call|name) (?:it|them|this|that|the (?:result|table|data ?frame|list|series)) [`'\"]?([A-Za-z_]\w*)"
    r"(?!\w|\.\w)"
    r"|\b(?:keep|save|store|assign|put)\s+(?:it|them|this|that|the \w+(?: \w+)?)\s+(?:as|in|into|to)\s+"
    r"(?:(?:an? |the )?(?:variable|data ?frame|list|dict)\s+)?[`'\"]?"
    r"(?!(?:an?|the|my|its?|one|memory|case|mind|place|text|csv|json|excel|png|pdf|disk|file|numbers?|percent)\b)"
    r"([A-Za-z_]\w*)(?!\w|\.\w|/)"
    r"|\b(?:keep|save|store)\b[^.?!\n]{1,80}? as [`'\"]?([A-Za-z]+(?:_[a-z]\w*|\d+))(?!\w|\.\w|/)",
    re.IGNORECASE,
)
"""Finds the name that a question gives to a result."""


def named_functions(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that replace ``c.skew()`` by ``stats.skew(c)`` if the question names SciPy's function, and
    ``c.kurt()`` in the same way. By default, SciPy's functions return the biased estimate, and those of pandas the
    unbiased one."""
    for node in program.expressions:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args + node.keywords:
            function = {"skew": "skew", "kurt": "kurtosis", "kurtosis": "kurtosis"}.get(node.func.attr)
            if function and f"scipy.stats.{function}" in question:
                yield (*program.span(node), f"stats.{function}({program.source(node.func.value)}.dropna())")


def named_options(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that add the options that the question names and that a call lacks or has with another value:
    ``ddof=0`` in a call of ``std``, ``equal_var=False`` in a t-test of which the question says that it is Welch's. An
    option with two values in the question is left as it is."""
    named = [*OPTION.findall(question), *(option for words, option in OPTION_WORDS if words.search(question))]
    values = {name: {value for other, value in named if other == name} for name, _ in named}
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
                yield (end, end, f"{'' if is_first else ', '}{name}={value}")
            elif isinstance(given[name], ast.Constant) and program.source(given[name]) != value:
                yield (*program.span(given[name]), value)


def inclusive_bins(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that correct calls of ``pd.cut``, so that both ends of each range in the question ("0 to 17,
    18 to 39") belong to the range. With the bins [0, 18, 40], or [0, 17, 39] and ``right=False``, a value at an end
    falls into the wrong range."""
    ranges = [(int(low), int(high)) for low, high in RANGE.findall(question)]
    if len(ranges) < 2 or ".cut(" not in program.code:
        return
    lows, highs = {low for low, _ in ranges}, {high for _, high in ranges}
    for call in program.nodes:
        if not isinstance(call, ast.Call) or not program.source(call.func).endswith(".cut"):
            continue
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        bins = call.args[1] if len(call.args) > 1 else options.get("bins")
        if isinstance(bins, ast.Name):
            bins = _assigned_value(program, bins.id)
        if not isinstance(bins, ast.List) or not bins.elts:
            continue
        edges = [(program.span(edge), ast.unparse(edge)) for edge in bins.elts[1:]]
        inner = {int(text) for _, text in edges if text.isdecimal()}
        end = program.span(call)[1] - 1
        if "right" in options and ast.unparse(options["right"]) == "False":
            # Each bin excludes its right end, so an end that is the highest value of a range is one too low.
            yield from ((*at, str(int(text) + 1)) for at, text in edges if text.isdecimal() and int(text) in highs)
        elif inner & lows and not inner & highs and "right" not in options:
            # By default, each bin includes its right end; here the right ends are the lowest values of the next range.
            yield (end, end, ", right=False")
        elif inner & highs and ast.unparse(bins.elts[0]) in map(str, lows) and "include_lowest" not in options:
            # By default, the first bin excludes its left end, which is the lowest value of the first range.
            yield (end, end, ", include_lowest=True")


def zeros_for_missing(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that remove statements such as ``t['a'] = t['a'].fillna(0)``, if the program computes a mean, a
    median or another statistic that zeros change, and the question says nothing of missing values or zeros."""
    if not CHANGED_BY_ZEROS.search(program.code) or ABOUT_MISSING.search(question[:MAX_QUESTION]):
        return
    for statement in program.statements:
        if isinstance(statement, ast.Assign) and is_column(target := statement.targets[0]):
            column = ast.unparse(target)
            if ast.unparse(statement.value) in (f"{column}.fillna(0)", f"{column}.fillna(0.0)"):
                start, end = program.span(statement)
                yield (start, end + 1, "")


def unrelated_gaps(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that remove the labels in ``dropna(subset=[...])`` of columns that neither the question nor the rest
    of the program names, unless the question may ask for complete rows. If no label is left, the columns that the
    program uses take their place, unless the question is about missing values."""
    if COMPLETE_ROWS.search(question[:MAX_QUESTION]):
        return
    for call in program.nodes:
        if not isinstance(call, ast.Call) or not program.source(call.func).endswith(".dropna"):
            continue
        for subset in (one.value for one in call.keywords if one.arg == "subset"):
            labels = subset.elts if isinstance(subset, ast.List) else []
            used = [
                label
                for label in labels
                if isinstance(label, ast.Constant)
                and (program.code.count(repr(label.value)) > 1 or letters_of(str(label.value)) in letters_of(question))
            ]
            kept = [program.source(one) for one in used]
            table = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not used and isinstance(table, ast.Name) and not ABOUT_MISSING.search(question[:MAX_QUESTION]):
                kept = _labels_used(program, {table.id}, call)
            if kept and len(used) < len(labels):
                yield (*program.span(subset), f"[{', '.join(kept)}]")


def complete_table(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits after which ``t.dropna()`` removes only the rows without a value in a column that the program uses,
    if the question says nothing about missing values."""
    asked = question[:MAX_QUESTION]
    if ABOUT_MISSING.search(asked) or COMPLETE_ROWS.search(asked):
        return
    for call in program.nodes:
        function = call.func if isinstance(call, ast.Call) else None
        table = function.value if isinstance(function, ast.Attribute) and function.attr == "dropna" else None
        if not isinstance(call, ast.Call) or call.args or not isinstance(table, ast.Name):
            continue
        copies = {target.id for target, value in program.assignments if value is call and isinstance(target, ast.Name)}
        labels = _labels_used(program, {table.id} | copies, call)
        if labels and all(one.arg == "inplace" for one in call.keywords):
            subset = f"subset=[{', '.join(labels)}]"
            yield (*program.span(call), f"{table.id}.dropna({', '.join([subset, *program.arguments(call)])})")


def _labels_used(program: ParsedProgram, tables: Collection[str], call: ast.Call) -> list[str]:
    """Return the source of each label of a column of ``tables`` that the program uses but does not set: ``t['a']``,
    ``t[['a', 'b']]`` and ``t.groupby('a')['b']``. Return an empty list if one of the names becomes another table after
    ``call``, which may have other columns."""
    targets = (target for target, _ in program.assignments if isinstance(target, ast.Name) and target.id in tables)
    if any(target.lineno > call.lineno for target in targets):
        return []
    labels, stored = [], set()
    for node in program.expressions:
        if not isinstance(node, ast.Subscript):
            continue
        table = node.value
        if isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute) and table.func.attr == "groupby":
            table = table.func.value
        parts = node.slice.elts if isinstance(node.slice, ast.List) else [node.slice]
        if isinstance(table, ast.Name) and table.id in tables and all(map(is_label, parts)):
            found = [program.source(one) for one in parts]
            labels += found
            stored |= set(found) if isinstance(node.ctx, ast.Store) else set()
    return [label for label in dict.fromkeys(labels) if label not in stored]


def neighbours_of_a_group(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits after which ``t['day'].diff()`` compares a row with the one before it in the same group, if the
    question asks for this and names a column of the program. Dates are sorted first, so that no difference is
    negative."""
    words = {letters_of(word) for word in OF_THE_SAME.findall(question[:MAX_QUESTION])}
    labels = {
        str(node.value)
        for node in program.expressions
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    group = next((label for label in sorted(labels) if {letters_of(label), letters_of(label) + "s"} & words), None)
    if group is None or "groupby" in program.code:
        return
    dates = set(date_columns(program))
    for call in program.expressions:
        function = call.func if isinstance(call, ast.Call) else None
        if not isinstance(function, ast.Attribute) or function.attr not in NEIGHBOURS:
            continue
        column = function.value
        if is_column(column):
            table, label = program.source(column.value), program.source(column.slice)
            in_order = f"{table}.sort_values({label})" if program.source(column) in dates else table
            yield (*program.span(column), f"{in_order}.groupby({group!r})[{label}]")


def compared_durations(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield an edit that replaces the number with which a column of durations is compared, if it is none of the
    durations in the question in the unit of the column. Exactly one number must be wrong and one duration missing:
    a model that converts 3 hours to seconds may write 18000."""
    asked = [float(count) * SECONDS_OF[unit.lower()] for count, unit in DURATION.findall(question[:MAX_QUESTION])]
    compared = [
        (unit[1].lower(), number)
        for node in program.expressions
        if isinstance(node, ast.Compare) and is_column(node.left)
        for number in node.comparators
        if isinstance(number, ast.Constant) and type(number.value) in (int, float)
        if (unit := UNIT_OF_LABEL.search(str(ast.literal_eval(node.left.slice))))
    ]
    if len({unit for unit, _ in compared}) != 1:
        return
    wanted = {seconds / SECONDS_OF[compared[0][0]] for seconds in asked}
    numbers = {float(str(number.value)) for _, number in compared} - {0}
    if len(numbers - wanted) == 1 and len(wanted - numbers) == 1:
        (wrong,), (missing,) = numbers - wanted, wanted - numbers
        for _, number in compared:
            if number.value == wrong:
                yield (*program.span(number), f"{missing:.12g}")


def weekday_names(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that replace the numbers of weekdays by their names if the question asks for a weekday, unless the
    program has a list of the names."""
    has_list_of_names = re.search(r"[\[{(] *(?:0: *)?['\"]Mon(?:day)?['\"]", program.code)
    if ASKS_FOR_WEEKDAY.search(question) and not has_list_of_names:
        yield from ((*match.span(), ".dt.day_name()") for match in WEEKDAY.finditer(program.code))


def accuracy_in_percent(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield edits that multiply an accuracy by 100 if the question asks for percent, unless the program multiplies or
    formats it so."""
    if not PERCENT_OF_ACCURACY.search(question[:MAX_QUESTION]) or re.search(r"\b100\b|%\}", program.code):
        return
    for node in program.expressions:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "accuracy_score":
            yield (*program.span(node), f"{program.source(node)} * 100")


def result_name(program: ParsedProgram, question: str) -> Iterator[Edit]:
    """Yield an edit that assigns what the last statement prints or displays to the variable whose name the question
    gives to the result, if the program does not set this variable."""
    names = result_names(question)
    last = program.statements[-1] if program.statements else None
    shown = last.value if isinstance(last, ast.Expr) else None
    if isinstance(shown, ast.Call) and ast.unparse(shown.func) in ("print", "display"):
        shown = shown.args[0] if len(shown.args) == 1 and not shown.keywords else None
    if len(names) != 1 or not misses_variable(program.code, question) or last is None or shown is None:
        return
    if not isinstance(shown, ast.Constant | ast.JoinedStr) and not ast.unparse(shown).startswith("plt."):
        (start, end), (first, after) = program.span(shown), program.span(last)
        shows = f"{program.code[first:start]}{names[0]}{program.code[end:after]}"
        yield (first, after, f"{names[0]} = {program.source(shown)}\n{shows}")


def misses_variable(code: str, question: str) -> bool:
    """Return whether the question gives the name of the variable for the result, and the code does not set this
    variable. False for code that cannot be parsed."""
    names = result_names(question)
    return bool(names) and bool(parse_or_empty(code).body) and names_set(code).isdisjoint(names)


def result_names(question: str) -> list[str]:
    """Return the names that the question gives to a result."""
    return [name for match in RESULT_NAME.finditer(question[:MAX_QUESTION]) for name in match.groups() if name]


def with_summed_column(code: str, question: str, facts: Sequence[str]) -> str:
    """Return the code with the sums of a column in place of the numbers of rows: ``t['shop'].value_counts()`` becomes
    ``t.groupby('shop')['units'].sum()``. The question asks for most or fewest of the column ("which shop sold the most
    units"), or the column says how many things each row stands for, and the code does not use its sums otherwise.
    ``facts`` describe the tables and files of the question."""
    labels = column_labels(facts)
    words = question[:MAX_QUESTION]
    asked = [label for label in labels if re.search(rf"\b(?:most|fewest) {re.escape(label)}\b", words, re.IGNORECASE)]
    if not asked and MOST.search(words):
        asked = [label for label in labels if label.casefold() in NUMBERS_OF_THINGS]
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


def _assigned_value(program: ParsedProgram, name: str) -> ast.expr | None:
    for node in program.nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None
