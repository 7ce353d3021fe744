"""Finds mistakes in a small model's program that raise no error. The program prints many rows although the question
asks for one value; it computes with a column of text as if it contained numbers; it defines a function again without a
change; or it defines a function that does not return the result of the question's example. The functions have no side
effects.

The description of a table, in the hidden context of a question, contains the lines that convert such columns (see
``text_columns``).
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from agent_kernel.core.programs.syntax_tree import names_in, names_set, parse_or_empty
from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import EACH, rows_of

ONE_VALUE = re.compile(
    r"\b(?:how (?:many|much)|total|sum|average|mean|median|share|percentage|number of|(?:high|low|larg|small|bigg|long"
    r"|short|old|young|new|late|earli|great|fast|slow|few|hott|cold|wett|b)est|most|least|worst|maximum|minimum"
    r"|wie ?viele?|summe|gesamt\w*|durchschnitt\w*|mittelwert|anteil|höchste\w*|niedrigste\w*|größte\w*|kleinste\w*"
    r"|längste\w*|kürzeste\w*|meiste\w*|wenigste\w*"
    r"|combien|somme|moyenne|médiane|le plus|la plus|cuánt[oa]s?|suma|promedio|media|mediana|el más|la más)\b",
    re.I,
)
"""Finds words in a question that ask for one value, or for the one row with a highest or lowest value."""
MANY_ROWS = 6
"""The smallest number of rows that is too many for a question that asks for one value."""
LENGTH = re.compile(r"^(?:.*\bLength: (\d+).*|\[(\d+) rows x \d+ columns\])$", re.MULTILINE)
"""Matches the line in which pandas states the number of rows, if it prints only the first and the last rows."""
CONVERSION = re.compile(
    r"^(?P<place>(?P<frame>[A-Za-z_]\w*)\['(?P<label>[^'\\\n]+)'\]) "
    r"(?P<problem>holds text|holds several units|has equal values in different (?:case or spaces|case|spaces))\. "
    r"Convert it first: (?P<line>(?P<name>\w+) = (?:"
    r"pd\.to_numeric\((?P=place)(?:\.astype\(str\))?"
    r"(?:\.str\.replace\(r'\[\^\\d[.,]-\]', '', regex=True\)(?:\.str\.replace\(',', '\.'\))?)?, errors='coerce'\)"
    r"(?: \* (?P=place)\.str\.extract\(r'\(\[A-Za-z\]\+\)'\)\[0\]\.str\.lower\(\)\.map\(\{[\w': ,.-]+\}\))?"
    r"|pd\.to_datetime\((?P=place), (?:dayfirst=True|format='[%/:\w ]+')\)"
    r"|pd\.to_timedelta\((?P=place)(?:, errors='coerce'\)|\)\.dt\.total_seconds\(\))"
    r"|(?P=place)\.str\.strip\(\)\.str\.lower\(\)(?: == 'true')?))$",
    re.MULTILINE,
)
"""Matches the line which states that a column must be converted before code computes with it or compares it. Only lines
that ``describe_conversion`` makes match, because the description of a table also quotes data, and data must not add
code to a program."""
AMOUNTS = re.compile(
    r"^(?P<frame>[A-Za-z_]\w*) has no column of amounts \(revenue, sales, spending\)\. Compute it first: "
    r"(?P<line>(?P=frame)\['(?P<name>amount)'\] = "
    r"(?P=frame)\['(?P<first>[^'\\\n]+)'\] \* (?P=frame)\['(?P<second>[^'\\\n]+)'\])$",
    re.MULTILINE,
)
"""Matches the line which states how code computes the amounts of the rows of a table. Like CONVERSION, it matches only
what ``describe_amount`` makes."""
ASKS_FOR_AMOUNTS = re.compile(
    r"\b(?:revenue|turnover|spen[dt]|spending|total sales|sales (?:volume|value|figures)|umsatz\w*|umsätze\w*)\b",
    re.IGNORECASE,
)
"""Finds words in a question that ask for amounts of money."""
DURATIONS = re.compile(
    r"^(?P<frame>[A-Za-z_]\w*) has no column of durations\. Compute it first: "
    r"(?P<line>(?P=frame)\['(?P<name>days)'\] = "
    r"\((?P=frame)\['(?P<first>[^'\\\n]+)'\] - (?P=frame)\['(?P<second>[^'\\\n]+)'\]\)"
    r"\.dt\.total_seconds\(\) / 86400)$",
    re.MULTILINE,
)
"""Matches what ``describe_duration`` makes."""
ASKS_FOR_DURATIONS = re.compile(
    r"\b(?:how long|durations?|slow(?:er|est|ly)?|fast(?:er|est)?|quick\w*|tak(?:es?|ing)|took|turnaround|lead time"
    r"|(?:how many|number of|average|mean|median|most|fewest|more than|over|under|within|\d+) (?:\w+ )?(?:days|hours)"
    r"|stays?|longest|shortest|wie lange|dauer\w*|tage)\b",
    re.IGNORECASE,
)
"""Finds words in a question that ask how long something takes."""
COMPUTED = ((AMOUNTS, ASKS_FOR_AMOUNTS), (DURATIONS, ASKS_FOR_DURATIONS))
"""The facts about columns that code can compute, each with the questions for which it needs the column."""
CONVERTS = re.compile(r"\bto_(?:numeric|datetime|timedelta)\b|\.(?:str|map|apply|replace|transform)\b|\bint\(")
USES_NUMBERS = re.compile(
    r"\.(?:isna|isnull|notna|notnull|sum|mean|median|std|var|min|max|idxm\w+|quantile|describe|corr|cumsum|plot|hist"
    r"|nlargest|nsmallest|agg|sort_values)\b|[<>*/+]|\b(?:sum|min|max|sorted|mean|median)\("
)
"""Finds computations, comparisons of order and searches for missing values, for which text gives an error or a wrong
result: the word "unknown" is a missing number only after the conversion."""
COMPARES = re.compile(
    r"==|!=|\.(?:isin|value_counts|groupby|unique|nunique|drop_duplicates|mode|contains|startswith|endswith|match)\b"
)
IGNORES_CASE = re.compile(
    r"\.(?:lower|upper|title|capitalize|casefold|map|apply|replace|transform)\b|\bcase ?= ?False|IGNORECASE"
)
IGNORES_SPACES = re.compile(r"\.(?:l?strip|rstrip|split|contains|map|apply|replace|transform)\b")
CONVERTS_UNITS = re.compile(r"\.map\(|\b(?:0\.001|1000|1e3|60|3600)\b")
"""Finds code that converts the numbers of one unit to another."""
CURES = {
    "holds text": (CONVERTS,),
    "holds several units": (CONVERTS_UNITS,),
    "has equal values in different case": (IGNORES_CASE,),
    "has equal values in different spaces": (IGNORES_SPACES,),
    "has equal values in different case or spaces": (IGNORES_CASE, IGNORES_SPACES),
}
"""Maps each problem of a column that CONVERSION finds to the patterns that solve it: a program that uses the column
must contain a match of each of these patterns."""

FUNCTION = re.compile(
    r"^(?:[\w ]+: )?(?P<name>[A-Za-z_]\w*): function .*, defined by\n(?P<source>(?:    .*(?:\n|\Z)|[ \t]*\n)+)",
    re.MULTILINE,
)
"""Matches the description of a function of the notebook, with its source."""
CHANGE = (
    "fix|correct|repair|chang|modif|adapt|adjust|improv|rewrit|extend|korrigier|reparier|behebe|änder|verbesser|erweiter"
    "|corrig|répar|arregl|cambi"
)
COMPLAINT = "should|instead|wrong|incorrect|bug|broken|soll|falsch|fehler|devrait|faux|fausse|erreur|deber[íi]a"
ASKS_FOR_CHANGE = re.compile(rf"\b(?:{CHANGE})\w*", re.IGNORECASE)
"""Finds words in a question that ask for a change of a function."""
COMPLAINS = re.compile(rf"\b(?:{CHANGE}|{COMPLAINT})\w*", re.IGNORECASE)
"""Finds words in a question that ask for a change of a function, or say that it does not do what it should."""
UNDEFINED = re.compile(r"^NameError: name '(\w+)' is not defined", re.MULTILINE)
LITERAL = r"""-?\d+(?:\.\d+)?|'[^'\n]*'|"[^"\n]*"|\[[^\[\]\n]*\]|\([^()\n]*\)|\{[^{}\n]*\}|True|False|None"""
EXAMPLE = re.compile(
    r"(?<![\w.])(?P<call>(?P<name>[A-Za-z_]\w*)\((?:[^()\n]|\([^()\n]*\))*\))[^(\n]{0,60}?"
    r"\b(?:(?:shoul?d|must) (?:be|return|give|equal|yield)|expect(?:ed)?(?: it)?(?: to (?:be|return|give))?"
    r"|want(?: [^\n.:'\"]{1,30}:)?|soll(?:te)?|devrait (?:être|donner|renvoyer)|deber[íi]a (?:ser|dar|devolver))"
    rf" (?P<value>{LITERAL})(?=\s*(?:[.,](?!\d)|[;:!?)`]|\Z|\n"
    r"|(?:instead|not|but|and|there|then|here|sein|ergeben|liefern|zurückgeben)\b))"
)
"""Matches an example in a question of what a function should return: ``median([1, 2]) gives 2 but should be 1.5``."""


def surplus_rows(output: str, question: str) -> int:
    """Return the number of rows of ``output`` if they are too many for a question that asks for one value; otherwise 0.
    A question for one value per group ("mean salary per department") is answered by several rows."""
    if EACH.search(question) or not ONE_VALUE.search(question):
        return 0
    lengths = [int(first or second) for first, second in LENGTH.findall(output)]
    rows = lengths[-1] if lengths else len(rows_of(output))
    return rows if rows >= MANY_ROWS else 0


@dataclass(frozen=True, slots=True)
class MissingLine:
    """A line of code that converts a column of text, or computes amounts, and that a program lacks. ``line`` includes
    its line break. ``is_named`` means that the program already uses the variable or the column that the line sets, so
    that adding the line completes the program."""

    line: str
    is_named: bool


def find_missing_column(code: str, hidden: Sequence[str], question: str) -> MissingLine | None:
    """Return the line that computes the amounts or the durations of the rows of a table, if the question asks for them
    and ``code`` uses the table without the columns from which they are computed; otherwise None. ``hidden`` has the
    texts of the hidden context."""
    facts = [pattern for pattern, asks in COMPUTED if asks.search(question)]
    names = names_in(code)
    for fact in (match for pattern in facts for text in hidden for match in pattern.finditer(text)):
        rest = re.sub(r"(?m)^\w+ = pd\.read_.*$", "", code)  # this line names the columns with dates
        if fact["frame"] in names and not (fact["first"] in rest and fact["second"] in rest):
            is_named = re.search(rf"(['\"]){fact['name']}\1|\.{fact['name']}\b(?!\()", rest) is not None
            return MissingLine(f"{fact['line']}\n", is_named=is_named and ".dt.days" not in rest)
    return None


def find_missing_conversion(code: str, hidden: Sequence[str]) -> MissingLine | None:
    """Return the missing conversion of the first column with which ``code`` computes or compares although the column is
    text; None if no conversion is missing. ``hidden`` has the texts of the hidden context."""
    names = names_in(code)
    for fact in (match for text in hidden for match in CONVERSION.finditer(text)):
        label, name, frame = re.escape(fact["label"]), fact["name"], fact["frame"]
        line = f"{fact['line']}\n"
        described = re.compile(rf"^(?:[\w ]+: )?{frame}: \w*DataFrame\b", re.MULTILINE)
        exists = frame in names or any(map(described.search, hidden))
        if name in names and exists and not re.search(rf"\b{name} *=(?!=)", code):
            return MissingLine(line, is_named=True)
        # A model may also mistake the converted variable for a column of the table: packs['weight_number'].
        uses_column = re.compile(rf"(['\"]){label}(?:_\w+)?\1|\.{label}\b")
        lines = [text for text in code.splitlines() if frame in names and uses_column.search(text)]
        uses = USES_NUMBERS if fact["problem"].startswith("holds") else COMPARES
        converts = all(any(map(cure.search, lines)) for cure in CURES[fact["problem"]])
        if any(map(uses.search, lines)) and not converts and line not in code:
            return MissingLine(line, is_named=False)
    return None


def lacks_name(code: str, errors: Sequence[str]) -> bool:
    """Return whether the code uses a name that was undefined in an earlier try and that the code does not set either.
    ``errors`` are the texts of the earlier results."""
    missing = {match[1] for text in errors for match in UNDEFINED.finditer(text)}
    return bool(missing & names_in(code) - names_set(code)) if missing else False


def unchanged_function(code: str, hidden: Sequence[str], question: str) -> str:
    """Return the name of the function that the question asks to change if ``code`` defines it as before, apart from
    layout and comments. Return an empty string if there is none, or if the code also changes or defines another
    function. ``hidden`` has the texts of the hidden context, which contain the present functions."""
    if not COMPLAINS.search(question):
        return ""
    facts = [match for text in hidden for match in FUNCTION.finditer(text)]
    present_functions = {fact["name"]: _functions_in(textwrap.dedent(fact["source"])) for fact in facts}
    defined = _functions_in(code)
    unchanged = [name for name, tree in defined.items() if present_functions.get(name, {}).get(name) == tree]
    return unchanged[0] if unchanged and len(unchanged) == len(defined) else ""


def with_check(code: str, hidden: Sequence[str], question: str) -> str:
    """Return the code with an additional line, which fails unless a function returns the value that the question gives
    as an example. Return the code unchanged if the question has no example, or if the code has the line already. The
    function must be defined by the code or, if the question asks to change it, described in the texts ``hidden``. The
    line is added before an expression at the end, whose value is displayed.

    Only a call and a value that consist of literals are taken from the question. A number may differ from the example
    in further decimals."""
    body = parse_or_empty(code).body
    checked = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    checked |= _functions_in(code).keys()
    if ASKS_FOR_CHANGE.search(question):
        checked |= {fact["name"] for text in hidden for fact in FUNCTION.finditer(text)}
    for example in EXAMPLE.finditer(question) if body else ():
        call, value = _plain_literals(example["call"]), _plain_literals(example["value"])
        if example["name"] in checked and call and value:
            break
    else:
        return code
    fits = f"{call} == {value}"
    if re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        decimals = len(value.partition(".")[2]) or 2
        fits = f"abs({call} - {value}) <= {0.5 * 10**-decimals:.{decimals + 1}f}"
    line = f"assert {fits}, {f'{call} should be {value}, but is '!r} + repr({call})"
    lines, last = code.splitlines(), body[-1]
    if line in lines:
        return code
    end = last.lineno - 1 if isinstance(last, ast.Expr) else len(lines)
    return "\n".join([*lines[:end], line, *lines[end:], ""])


def _plain_literals(text: str) -> str:
    """Return ``text`` in the layout that ``ast.unparse`` writes if it is a literal or a call whose arguments are
    literals; an empty string for any other text."""
    tree = parse_or_empty(text).body
    if len(tree) != 1 or not isinstance(tree[0], ast.Expr):
        return ""
    value = tree[0].value
    parts = [*value.args, *(keyword.value for keyword in value.keywords)] if isinstance(value, ast.Call) else [value]
    try:
        for part in parts:
            ast.literal_eval(part)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ""
    return ast.unparse(value)


def _functions_in(code: str) -> dict[str, str]:
    """Return the functions that the code defines at its top level, as a mapping from the name to the syntax tree as
    text."""
    return {
        node.name: ast.dump(node)
        for node in parse_or_empty(code).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
