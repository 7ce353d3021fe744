"""Finds the sentences of a question that a program ignores: the sentence names a statistic, column, value, threshold or
treatment of missing values, and the program contains nothing that corresponds to it. The functions have no side
effects.

A small model often drops one of several conditions. The checks avoid false alarms: they report a sentence only if it
names something explicitly and the program contains none of the usual ways to compute it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from agent_kernel.core.programs.answer_form import SLOT, slots_of
from agent_kernel.core.programs.method_examples import QUARTER
from agent_kernel.core.programs.program_edits import ParsedProgram, is_column, is_condition, is_label, letters_of
from agent_kernel.core.programs.program_repair import CONVERTED
from agent_kernel.core.programs.question_mistakes import OF_THE_SAME
from agent_kernel.core.programs.table_facts import MAX_QUESTION, MIN_VALUE, column_labels, column_values, word_for

MAX_SENTENCE = 240
"""Maximum number of characters of a sentence that is returned."""
SENTENCE = re.compile(r"(?:[^.?!\n]|[.?!](?!\s|$))+[.?!]?")
LIST_MARK = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*])\s+")
METHODS = tuple(
    (re.compile(words, re.IGNORECASE), re.compile(ways, re.IGNORECASE | re.DOTALL))
    for words, ways in (
        (r"\bmedian\b", r"median|quantile|percentile|describe|50%"),
        (r"\b(?:high|larg|bigg|low|small)est total\b", r"\bsum\b|cumsum|\bagg\(|pivot|['\"]\w*total"),
        (r"\bstandard deviation\b", r"std|stdev|sqrt|describe|zscore|scale"),
        (r"\bcorrelat", r"corr|pearsonr|spearman|kendall|linregress|heatmap"),
        (r"\bz-?scores?\b", r"std|zscore|scale"),
        (r"\bIQR\b|\binterquartile\b", r"quantile|percentile|iqr|describe"),
        (r"\babsolute (?:value|z-?score|difference|deviation|error)", r"abs|fabs"),
        (
            r"\bp-?values?\b",
            r"stats\b|pvalue|pearsonr|spearmanr|kendalltau|ttest|f_oneway|chi2|wilcoxon|mannwhitneyu|shapiro|linregress"
            r"|normaltest|kruskal|levene|kstest|proportions|binom|anova|ols\(",
        ),
        (r"\bskewness\b", r"skew"),
        (r"\bscipy\.stats\.skew\b", r"stats\.skew|(?<!\.)skew\("),
        (r"\bscipy\.stats\.kurtosis\b", r"stats\.kurtosis|(?<!\.)kurtosis\("),
        (r"\bspearman\b", r"spearman"),
        (r"\bkendall\b", r"kendall"),
        (r"\bshapiro\b", r"shapiro"),
        (r"\bkolmogorov\b", r"kstest|ks_2samp|ks_1samp"),
        (r"\b(?:mann-?whitney|wilcoxon)\b", r"mannwhitneyu|wilcoxon|ranksums"),
        (r"\bt-?tests?\b", r"ttest"),
        (r"\b(?:rolling|moving) (?:mean|average|sum|median)", r"rolling|convolve|cumsum"),
        (r"\bkurtosis\b", r"kurt"),
        (
            r"\b(?:drop|remove|exclude|delete)\b[^.;\n]{0,60}\bmissing\b",
            r"dropna|notna|notnull|isna|isnull|isnan|None|!= ''",
        ),
        (
            QUARTER,
            r"\.quarter\b|to_period|Q[1-4]|['\"]Q|-\d\d-|\b(?:1, ?2|4, ?5|7, ?8|10, ?11|1, ?3|4, ?6|7, ?9|10, ?12)\b"
            r"|>= ?(?:4|7|10)\b|> ?(?:3|6|9)\b|<= ?3\b|< ?4\b",
        ),
        (
            r"\b(?:lowest|smallest|fewest|cheapest|minimum|(?<!\bat )least)\b",
            r"min|sort|ascending|nsmallest|tail|iloc|quantile|describe|<|reverse|most_common|rank"
            r"|\A(?!.*(?:max|nlargest))",
        ),
        (
            r"\b(?:highest|largest|biggest|maximum)\b",
            r"max|sort|ascending|nlargest|head|iloc|quantile|describe|>|mode\(|most_common|rank"
            r"|\A(?!.*(?:min\(|nsmallest))",
        ),
        (
            r"\b(?:fell|falls?|fallen|drop(?:s|ped)?|declined?|decreased?|lost|lose|shrank)\b[^.;?]{0,40}"
            r"\b(?:most|largest|biggest|strongest)\b"
            r"|\b(?:largest|biggest|strongest) (?:fall|drop|decline|decrease|loss)\b",
            r"min|nsmallest|sort|ascending|tail|<|\A(?!.*(?:max|nlargest))",
        ),
        (r"\b(?:per|by|each|every|\d|four) quarters?\b|\bquarterly\b", r"quarter|['\"]Q|to_period|resample"),
        (r"\b(?:per|by|each|every|which) weekday\b|\bday of the week\b", r"weekday|day_?of_?week|day_name|%[aAuw]"),
        (
            r"\bfit (?:a |an )?(?:straight |linear )?(?:line|regression|model)"
            r"|\b(?:linear )?regression\b|\bslope\b|\btrend line\b",
            r"polyfit|linregress|Regression|OLS|ols\(|lstsq|cov|curve_fit|\.fit\(|regplot|lmplot|corr",
        ),
        (r"\b(?:mean|average|avg|median)\b", r"\A(?!.*\]\.value_counts\(\)\.(?:idx|index|head|nlargest))"),
        (r"\bhour of (?:the )?day\b", r"hour|%H"),
        (r"\bweekends?\b", r"weekend|saturday|>= ?5|> ?4|\b5, ?6\b"),
        (
            r"\b(?:fill|replace|treat|impute|count|consider)\b[^.;\n]{0,30}\bmissing\b",
            r"fillna|interpolate|[fb]fill|fill_value|na_values|where|impute|isna|isnull|notna|notnull|isnan|get\(|None",
        ),
    )
)
"""Pairs of patterns: words of a question that name a method, and the code with which programs usually apply that
method."""
WORD = re.compile(r"[a-z]{4,}")
"""Matches a word in the name of a variable. A sentence with this word asks for the variable."""
KEEPS_COMPLETE = re.compile(r"dropna|cut\(|notna|notnull|isna|isnull|isnan|> 0|!= ''")
"""Matches code that leaves out rows without a value."""
KEEPS_ALL = re.compile(
    r"\b(?:including|no matter|regardless|do not (?:remove|drop|exclude|filter|transform|use))\b", re.IGNORECASE
)
"""Matches words that say what must not be done, so that a program need not use the columns that it names."""
DISTINCT = re.compile(r"[_\d]|[a-z][A-Z]|[^\W\d_] [^\W\d_]|\w\.\w")
"""Matches a label that is not an ordinary word, so that a question with this text means the column."""
AMOUNT = (
    r"most|fewest|highest|lowest|largest|smallest|total|average|mean|median|maximum|minimum|sum of(?: the)?"
    r"|meisten|wenigsten|höchste\w*|niedrigste\w*|größte\w*|kleinste\w*|durchschnittliche\w*|mittlere\w*|gesamte\w*"
)
"""Words after which a label means the numbers of the column: "sold the most units", "den höchsten Umsatz"."""
WHOLE_TABLE = re.compile(
    r"select_dtypes|\.columns|describe\(|\biloc|numeric_only|(?<!\])\.(?:corr|isna|isnull|dropna)\(\)"
)
"""Matches code that uses columns without naming them."""
FILLS = re.compile(r"\b(?:fill|replac|treat|imput)\w*\b[^.;\n]{0,20}\bmissing\b(.{0,40})", re.IGNORECASE)
"""Matches words that ask to fill missing values, with the text after them, which names a column."""
LEAVES_OUT = re.compile(
    r"\b(?:remov\w+|exclud\w+|drop|leave out|without|delete|filter out)\b[^.;]*\boutliers?\b"
    r"|\boutliers?\b[^.;]{0,20}\b(?:removed|excluded|dropped|left out)\b",
    re.IGNORECASE,
)
"""Finds a sentence that asks to remove outliers."""
SELECTS = re.compile(r"~|<|!=|\bdrop\(|isin|between|query|clip|mask|where|loc\[")
"""Matches code that selects or drops rows by their values."""
IN_WHICH = re.compile(r"\b(?:in|on|at) which (\w+)(?:(?:,| and| or) (\w+))?", re.IGNORECASE)
"""Matches a question such as "in which year or month" a value is largest. The groups are the names of the columns whose
values are the answer."""
NEIGHBOURS = re.compile(r"\.(?:shift|pct_change|diff)\(")
IN_GROUPS = re.compile(
    r"groupby|pivot|crosstab|resample|value_counts|unique|\bfor \w+|Counter|apply|transform|hue=|by=|facet|ols\("
)
"""Matches code that computes a value for each group of rows, or for each value of a column."""
BY_GROUP = re.compile(r"groupby\([^\n]*\.(?:shift|pct_change|diff|transform|apply)\(|\bfor \w+")
"""Matches code that compares neighbouring rows of each group."""
OF_THESE = re.compile(r"\b(?:of|for|in|among) (?:these|those)\b", re.IGNORECASE)
"""Finds a sentence that asks for something of rows that a condition selects."""
IDENTIFIER = re.compile(r"(?<![\w.@/-])(?!Q[1-4]\b)(?:[A-Z]{1,3}-?\d{1,6}|[a-z]\d{1,4})(?![\w(/-]|\.\w)")
"""Matches an identifier of letters and digits: ``s3``, ``W-07``, but not a quarter, ``Q3``."""
SENTINEL = re.compile(r"(?<![\w.,-])(-9{2,4}|9{3,4})(?![\w-]|[.,]\d)")
"""Matches a number that stands for a missing value."""
THRESHOLD = re.compile(
    r"\b(?:above|below|over|under|at least|at most|exceed(?:s|ing)?|since|until|before|after|top|bottom"
    r"|(?:more|less|fewer|[a-z]+er) than)\s+(?:the\s+)?(?P<first>\d+(?:\.\d+)?)(?![\w-]|\.\d|,\d|\s*decimal)"
    r"|(?<![\w.,-])(?P<second>\d+(?:\.\d+)?) or (?:more|less|fewer|above|below|[a-z]+er)\b"
    r"|(?<![\w.,-])(?P<share>\d+) ?% (?:for|as|of the (?:rows|data) (?:for|as)) (?:the )?(?:train|test)"
    r"|\brandom_state ?= ?(?P<state>\d+)"
    r"|\b(?:in|of|during|from) (?:[A-Z][a-z]+ )?(?P<year>(?:19|20)\d\d)(?![\w-]|\.\d)",
    re.IGNORECASE,
)
"""Matches a number with which the question says that values are compared."""


def uncovered_sentences(question: str, code: str, facts: Sequence[str]) -> list[str]:
    """Return the sentences of the question that the program ``code`` ignores, in order. They are followed by a sentence
    for each column that the program compares with a value that the column does not contain, which lists the column's
    values, and by a sentence for each pair of demanded values that the program computes in the same way. Return an
    empty list if the program cannot be parsed. ``facts`` describe the tables and files of the question."""
    tree = ParsedProgram(code).nodes
    for node in tree:
        if isinstance(node, ast.Assign) and _is_copied(node.value, code, facts):
            node.value = ast.Constant(None)
    try:
        # Comments are removed, because a model may write a condition as a comment and still not apply it.
        program = ParsedProgram(ast.unparse(tree[0]) if tree else "")
    except RecursionError:  # the code nests too deeply, such as a sum of hundreds of terms
        return []
    if len(program.nodes) < 2:
        return []
    labels, sentences = column_labels(facts), list(_sentences(question))
    values = {label: text for label, text in column_values(facts) if label in labels}
    unused = [name for name in _unused_names(program) if not re.search(rf"\b{re.escape(name)}\b", question)]
    unused += _unused_loop_variables(program)
    program = _without_columns(program, unused)
    found = [sentence for sentence in sentences if any(_gaps(sentence, program, labels, values))]
    words = {word for name in unused if not name.endswith(CONVERTED) for word in WORD.findall(name.lower())}
    found += [sentence for sentence in sentences if words & set(WORD.findall(sentence.lower()))]
    wrong = dict.fromkeys(filter(None, (_column_without(node, values) for node in program.nodes)))
    limits = [f"{label!r} has only these values: {values[label]}"[:MAX_SENTENCE] for label in wrong]
    limits += _equal_values(program, slots_of(question))
    return sorted(dict.fromkeys(found), key=sentences.index) + limits


def _is_copied(value: ast.expr, code: str, facts: Sequence[str]) -> bool:
    """Return whether the expression reads a log or JSON exactly as the facts say. It then names columns of the file,
    which is no use of them."""
    source = ast.get_source_segment(code, value) or ""
    # A CSV file or a workbook is excepted: its options name only the columns that are read as dates.
    is_csv = source.startswith(("pd.read_csv(", "pd.read_excel("))
    return bool(source) and not is_csv and any(f"read by {source}" in text for text in facts)


def _sentences(question: str) -> Iterator[str]:
    # After the first slot, the question only describes the form.
    for line in SLOT.split(question[:MAX_QUESTION], maxsplit=1)[0].splitlines():
        for match in SENTENCE.finditer(LIST_MARK.sub("", line)):
            sentence = " ".join(match[0].split())
            if 0 < len(sentence) <= MAX_SENTENCE:
                yield sentence


def _gaps(sentence: str, program: ParsedProgram, labels: Sequence[str], values: Mapping[str, str]) -> Iterator[str]:
    """Yield what the program ignores of the sentence, by the kind of condition."""
    if any(words.search(sentence) and not ways.search(program.code) for words, ways in METHODS):
        yield "method"
    named = [label for label in labels if label in sentence]
    unused = [label for label in named if _names(sentence, label) and not _uses(program, label)]
    if unused and not KEEPS_ALL.search(sentence):
        yield "column"
    filled = [one[1] for one in FILLS.finditer(sentence)]
    gappy = [label for label in named if any(label in text for text in filled)]
    if gappy and not any(_fills(program.code, label) for label in gappy):
        yield "filled missing values"
    absent = (re.search(rf"\bwithout (?:an? )?{re.escape(label)}(?!\w)", sentence) for label in named)
    if not KEEPS_COMPLETE.search(program.code) and any(absent):
        yield "rows without a value"
    plain = letters_of(program.code)
    if any(letters_of(one) not in plain for one in IDENTIFIER.findall(sentence)):
        yield "identifier"
    if LEAVES_OUT.search(sentence) and (_keeps_outliers(program) or not SELECTS.search(program.code)):
        yield "outliers"
    if OF_THESE.search(sentence) and _only_counts_selected_rows(program):
        yield "selected rows"
    places = [word for match in IN_WHICH.finditer(sentence) for word in match.groups() if word]
    # The largest year is not the year of the largest value.
    if any(re.search(rf"\['{re.escape(word)}'\]\.(?:max|min)\(\)", program.code, re.I) for word in places):
        yield "place of a value"
    if _ignores_groups(sentence, program, values):
        yield "groups"
    named_values = [(label, one) for label, text in values.items() for one in text.split(", ") if len(one) >= MIN_VALUE]
    named_values = [(label, one) for label, one in named_values if word_for(sentence, one)]
    if any(_ignores_value(program, label, one) for label, one in named_values):
        yield "value"
    numbers = [float(one) for match in THRESHOLD.finditer(sentence) for one in match.groups() if one]
    if not all(_has_number(program, number) for number in numbers):
        yield "threshold"
    # A syntax tree has a negative number as an operation on a positive one, so absolute values are compared.
    if not all(_has_number(program, abs(float(one))) for one in SENTINEL.findall(sentence)):
        yield "marked missing values"


def _ignores_groups(sentence: str, program: ParsedProgram, categories: Iterable[str]) -> bool:
    """Return whether the sentence asks for a comparison within groups of rows, or for a value of each group, and the
    program computes it over all rows."""
    if OF_THE_SAME.search(sentence) and NEIGHBOURS.search(program.code) and not BY_GROUP.search(program.code):
        return True
    each = [
        name
        for name in categories
        if re.search(rf"\b(?:each|every|per|by) {re.escape(name)}s?\b", sentence, re.IGNORECASE)
    ]
    return bool(each) and not (IN_GROUPS.search(program.code) and all(_uses(program, name) for name in each))


def _equal_values(program: ParsedProgram, slots: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each pair of consecutive statements that set two demanded values to the same expression."""
    for first, second in pairwise(program.statements):
        if isinstance(first, ast.Assign) and isinstance(second, ast.Assign):
            names = [ast.unparse(one.targets[0]) for one in (first, second)]
            is_computed = any(isinstance(node, ast.Call) for node in ast.walk(first.value))
            if is_computed and set(names) <= set(slots) and ast.unparse(first.value) == ast.unparse(second.value):
                yield f"{names[0]} and {names[1]} are different values."


def _keeps_outliers(program: ParsedProgram) -> bool:
    """Return whether the program selects the outliers instead of removing them: it uses a condition ``low | high``
    whose name contains "outlier", without negating it."""
    selected = {
        node.slice.id
        for node in program.nodes
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and "outlier" in node.slice.id.lower()
    }
    conditions = {
        target.id
        for node in program.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return bool(selected & conditions) and not re.search(r"~|\bdrop\(|isin", program.code)


def _only_counts_selected_rows(program: ParsedProgram) -> bool:
    """Return whether the program selects rows by a condition and uses nothing but their number: ``len(t[c])``,
    ``t[c].shape[0]``."""
    conditions = {ast.unparse(target) for target, value in program.assignments if is_condition(value)}
    selected = {
        id(node)
        for node in program.expressions
        if isinstance(node, ast.Subscript) and (is_condition(node.slice) or ast.unparse(node.slice) in conditions)
    }
    calls = [node for node in program.expressions if isinstance(node, ast.Call) and ast.unparse(node.func) == "len"]
    counted = {id(one) for call in calls for one in call.args}
    counted |= {id(one.value) for one in program.nodes if isinstance(one, ast.Attribute) and one.attr == "shape"}
    return bool(selected) and selected <= counted


def _ignores_value(program: ParsedProgram, label: str, value: str) -> bool:
    """Return whether the program does not use the column ``label``, or only finds its most frequent value, although the
    question names ``value``. A program that uses the column in another way may select the value, for example by a loop
    over the values of the column."""
    column = re.escape(repr(label))
    finds = re.search(rf"\[{column}\]\.(?:value_counts\(\)\.(?:idxmax|max|nlargest|head|index)\b|mode\()", program.code)
    return not _uses(program, label) or (bool(finds) and value.casefold() not in program.code.casefold())


def _column_without(node: ast.AST, values: Mapping[str, str]) -> str:
    """Return the column that the node compares with a text that the column does not contain: ``t['source'] == 'oil'``.
    Return an empty string for any other node."""
    is_equal = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)
    if not is_equal or not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Subscript):
        return ""
    label = ast.unparse(node.left.slice).strip("'\"")
    listed, other = values.get(label, ""), node.comparators[0]
    text = other.value if isinstance(other, ast.Constant) and isinstance(other.value, str) else ""
    is_listed = text in listed.split(", ") or (", " in text and text in listed)
    return "" if not listed or not text or "..." in listed or is_listed else label


def _names(sentence: str, label: str) -> bool:
    """Return whether the sentence names the column ``label``. A label that is also an ordinary word counts only in
    quotes, and after a word that asks for an amount of it."""
    plain = re.escape(label)
    if DISTINCT.search(label):
        return bool(re.search(rf"(?<![\w'./]){plain}(?![\w'/]|\.\w)", sentence))
    return bool(re.search(rf'["`]{plain}["`]|\b(?i:{AMOUNT})\s+{plain}(?![\w\'/]|\.\w)', sentence))


def _uses(program: ParsedProgram, label: str) -> bool:
    return letters_of(label) in letters_of(program.code_without_tables) or bool(WHOLE_TABLE.search(program.code))


def _fills(code: str, label: str) -> bool:
    """Return whether the program fills the missing values of the column, of a variable or of a whole table. Filling the
    missing values of a result that was computed from the column does not count, because the result is different
    then."""
    column = re.escape(repr(label))
    methods = r"\.(?:fillna|replace|where|mask|interpolate|isna|isnull|[fb]fill)\("
    return bool(re.search(rf"{column}\]*{methods}|\b\w+{methods}|fillna\([^)]*{column}|to_numeric|Imputer", code))


def _unused_names(program: ParsedProgram) -> Iterator[str]:
    """Yield the names of variables and the labels of columns that the program computes but does not use later. Yield
    nothing for a program that prints nothing."""
    calls = [node for node in program.nodes if isinstance(node, ast.Call)]
    if not any(ast.unparse(call.func) == "print" for call in calls):
        return
    names = [node for node in program.nodes if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    columns = [node for node in program.nodes if isinstance(node, ast.Subscript) and is_label(node.slice)]
    # Reading only the length, the shape or another column of a table does not use the new column.
    narrow = {id(node.value) for node in columns}
    narrow |= {id(one) for call in calls if ast.unparse(call.func) == "len" for one in call.args}
    narrow |= {id(node.value) for node in program.nodes if isinstance(node, ast.Attribute) and node.attr == "shape"}
    for target in (one for node in program.nodes if isinstance(node, ast.Assign) for one in node.targets):
        if isinstance(target, ast.Name) and target.id not in read:
            yield target.id
        elif isinstance(target, ast.Subscript) and target in columns and isinstance(target.value, ast.Name):
            label, table = ast.unparse(target.slice), target.value.id
            constants = sum(isinstance(one, ast.Constant) and ast.unparse(one) == label for one in program.nodes)
            stored = sum(ast.unparse(one.slice) == label and isinstance(one.ctx, ast.Store) for one in columns)
            later = (one for one in names if one.id == table and one.lineno > target.lineno)
            if constants == stored and all(id(one) in narrow for one in later):
                yield label.strip("'\"")


def _without_columns(program: ParsedProgram, labels: Collection[str]) -> ParsedProgram:
    """Return the program without the computation of these columns, because what it only computes for a column that
    nothing uses has no effect on the result."""
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        label = ast.unparse(target.slice) if is_column(target) else ""
        if isinstance(node, ast.Assign) and label.strip("'\"") in labels:
            node.value = ast.Constant(None)
    return ParsedProgram(ast.unparse(program.nodes[0])) if labels else program


def _unused_loop_variables(program: ParsedProgram) -> Iterator[str]:
    """Yield the variable of each loop whose body only assigns this variable to another one, as in a search for the best
    value. Such a body computes the same result for every value of the variable, which is a mistake."""
    for loop in program.nodes:
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
            inside = [node for statement in loop.body for node in ast.walk(statement)]
            copied = [node.value for node in inside if isinstance(node, ast.Assign)]
            used = [node for node in inside if isinstance(node, ast.Name) and node.id == loop.target.id]
            if used and all(node in copied for node in used):
                yield loop.target.id


def _has_number(program: ParsedProgram, number: float) -> bool:
    """Return whether the program contains the number, also in a text, its neighbour (``>= 51`` for "above 50"), or the
    fraction if it is a percentage."""
    if number in (0, 1):
        return True
    near = (number, number - 1, number + 1, number / 100, 1 - number / 100)
    values = [node.value for node in program.nodes if isinstance(node, ast.Constant)]
    numbers = [float(one) for one in values if isinstance(one, int | float)]
    numbers += [float(one) for text in values if isinstance(text, str) for one in re.findall(r"\d+(?:\.\d+)?", text)]
    return any(abs(one - other) < 1e-9 for one in numbers for other in near)
