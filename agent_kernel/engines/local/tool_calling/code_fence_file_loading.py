"""Writes the first lines of the model's code if the user names a file. The lines read the file into a variable, whose
name is the one that the user gives or is made from the file's name. The functions have no side effects.

The hidden context of a question contains an expression that reads each file ("teas.csv: CSV read by
pd.read_csv('teas.csv'), ..."). An expression is used only if it does nothing but read, and only for a file that the
user's own text names, because the hidden context also quotes cell outputs and files from unknown sources.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from agent_kernel.core.file_facts.text_file import LINES as ABOUT_LINES
from agent_kernel.core.file_facts.workbook import is_sheet_named

FACT = re.compile(
    r"(?:Files: )?(?:(?P<path>\S.*?): (?:[A-Za-z]+ )+?|- (?P<input>[\w.-]+) \(id .*\), )read by (?=pd\.|json\.|open\()"
)
"""Matches the beginning of a line of hidden context about a file, up to the expression that reads it. The file is one
that the kernel can read, or an input file of the turn."""
SHEET = re.compile(r" +sheet (?P<sheet>\S.*?) read by (?=pd\.read_excel\()")
"""Matches the beginning of a line about another sheet of the workbook that the line before describes."""
SEVERAL_SHEETS = re.compile(r"\b(?:other|both|all|each|two) (?:the )?(?:\w+ )?sheets?\b", re.IGNORECASE)
"""Finds a question that speaks of several sheets."""
FIRST_SHEET = re.compile(r", sheets: ([^,\n]+)")
"""Matches the name of the first sheet in the description of a workbook."""
READERS = frozenset({"read_csv", "read_json", "read_excel", "read_parquet", "load", "open"})
"""Names of the functions that read a file. ``json.load`` reads what ``open`` returns."""
CONVERTERS = frozenset(
    {"read", "splitlines", "Series", "str", "extract", "dropna", "astype", "json_normalize", "DataFrame", "from_dict"}
    | {"rename_axis", "reset_index", "to_dict", "concat", "ffill"}
)
"""Names of the methods that make a list or a table of what was read."""
LINES = ".splitlines()"
"""Suffix of an expression whose value is a list of lines. The variable that gets this value is named "lines", so that a
small model knows what each element is."""
LOG_TABLE = re.compile(r"pd\.Series\((open\(.*?\)\.read\(\)\.splitlines\(\))\)\.str\.extract\(")
"""Matches the beginning of an expression that reads a log as a table; the group is the list of its lines."""
MODULES = frozenset({"pd", "json", "open"})
OPTIONS = frozenset(
    {"sep", "skiprows", "decimal", "thousands", "parse_dates", "dayfirst", "date_format", "encoding", "lines", "how"}
    | {"record_path", "meta", "orient", "sheet_name", "skipfooter", "names", "drop"}
)
NODES = (ast.Expression, ast.Call, ast.Attribute, ast.Name, ast.Load, ast.Constant, ast.List, ast.Dict, ast.keyword)
KIND = (
    r"(?:(?:an?|the|my)\s+)?(?:new\s+)?(?:pandas\s+)?"
    r"(?:(?:data\s?frame|table|list|dict(?:ionary)?|variable|string)\s+)?(?:(?:called|named)\s+)?"
)
OTHERS = ("column", "columns", "feature", "field", "function", "sheet")
NO_TABLE = "".join(rf"(?<!{word}\s)" for word in OTHERS)
"""A part of a pattern that rejects a name directly after one of the words OTHERS, because this is not the name of a
table. Each word has its own look-behind, because look-behinds need a fixed width."""
MAX_ASKED = 4_000
"""Maximum number of characters of a question that are searched for files and names."""
MAX_FACT = 2_000
MAX_PARENTHESES = 80
"""Maximum number of closing parentheses of a line that are tried as the end of the expression. The pattern of a log
has many."""
GIVEN = (
    re.compile(rf"\b(?:load|read|open|import|get|put)\b.*?\b(?:as|into)\s+{KIND}[`{{]?([A-Za-z_]\w*)", re.I),
    re.compile(rf"\b(?:make|create|build)\s+{KIND}[`{{]?([A-Za-z_]\w*)[`}}]?\s+(?:from|out of)\b", re.I),
    re.compile(rf"(?:{NO_TABLE})\b(?:called|named|call it|name it)\s+[`{{]?([A-Za-z_]\w*)", re.I),
    re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*=\s*(?:pd\.|json\.|open\b|read\b|[\"'`]?[\w./-]*\.[a-z]{2,7}\b)"),
)
"""Patterns that find the name that the user gives to the variable for a file. Neither a column (``a column called
total``) nor a parameter of a method (``random_state=42``) is such a variable."""
NO_NAME = re.compile(
    r"an?|the|its?|th(?:is|at)|my|one|and|with|memory|pandas|python|data|dataframe|table|list|dict|text|string|json|csv"
    r"|dates?|numbers?|file|index",
    re.I,
)
FILE_NAME = re.compile(r"\w\.[a-z]{2,7}\b", re.IGNORECASE)
CODE_OF_MISSING = re.compile(r"(?<![\w.,-])-9{2,5}(?![\w-]|[.,]\d)")
"""Matches a negative number that stands for a missing value in many data files."""
MISSING_OPTION = re.compile(r", na_values=\[[-\d, ]*\](?=\))")
"""Matches the option that ``reading_lines`` adds to an expression."""
MEANS_MISSING = re.compile(
    r"\b(?:missing|unknown|invalid|no (?:value|data)|(?:not|never) (?:known|measured|recorded|available)"
    r"|fehl\w+|unbekannt|manquant\w*|inconnu\w*|faltante\w*|desconocid\w*)\b",
    re.IGNORECASE,
)
AS_IT_IS = re.compile(r"\bas (?:it is|they are)\b|\bincluded\b", re.IGNORECASE)
"""Finds words with which a question asks for the values exactly as they are in the file. Numbers that stand for missing
values then stay numbers."""
WRITES = (
    r"\b(?:save|write|export|store|dump|append|add)\b[^?!\n]*?"
    r"\b(?:to|into|as)\s+(?:(?:the|a)\s+)?(?:new\s+)?(?:file\s+)?[\"'`]?"
)
"""Matches the text before the name of a file that the code is to write, and not to read."""
WRITTEN_FILE = re.compile(rf"{WRITES}[\w./-]+\.[a-z]{{2,7}}\b", re.IGNORECASE)


def reading_lines(question: str, hidden: Sequence[str], variables: Sequence[str]) -> str:
    """Return the lines of code that read the files of a question: one line for each file that the user's text
    ``question`` names and the texts ``hidden`` describe. Return an empty string if there is none. ``variables`` are the
    names of existing variables, which are not overwritten unless the user gives that name."""
    question = question[:MAX_ASKED]
    files = _without_other_sheets(dict(_files(question, hidden)), question, hidden)
    requested_name = _find_name(question) if len(files) == 1 else ""
    used_names = set(variables)
    lines = []
    codes = ", ".join(_codes_of_missing(question))
    for path, reads_table in files.items():
        lines_of_log = LOG_TABLE.match(reads_table) if ABOUT_LINES.search(question) else None
        expression = lines_of_log[1] if lines_of_log else reads_table
        name = requested_name or _free("lines" if expression.endswith(LINES) else path, used_names)
        used_names.add(name)
        has_codes = codes and expression.startswith(("pd.read_csv(", "pd.read_excel("))
        reads = _with_option(expression, f"na_values=[{codes}]") if has_codes else expression
        lines.append(f"{name} = {reads}\n")
    return "".join(lines)


def facts_of_read_file(reading: str, hidden: Sequence[str]) -> list[str]:
    """Return what the texts ``hidden`` say of the file that the line ``reading`` reads: the rest of the line with its
    expression, and the indented lines after it. The texts also describe other files and tables."""
    expression = MISSING_OPTION.sub("", reading.rstrip().partition(" = ")[2])
    for text in hidden:
        _, found, after = text.partition(f"read by {expression}")
        if found:
            first, *others = after.splitlines()
            return ["\n".join([first, *takewhile(lambda line: line.startswith(" "), others)])]
    return []


def _with_option(expression: str, option: str) -> str:
    """Return the expression with a further argument of the call that reads the file. Methods may follow this call."""
    calls = (node for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Call))
    end = next(call.end_col_offset or 0 for call in calls if _function_name(call) in READERS) - 1
    text = expression.encode()  # ast counts bytes
    return f"{text[:end].decode()}, {option}{text[end:].decode()}"


def _codes_of_missing(question: str) -> list[str]:
    """Return the numbers that stand for a missing value according to the question. pandas then reads them as missing in
    every column."""
    sentences = [] if AS_IT_IS.search(question) else re.split(r"(?<=[.?!;])\s|\n", question)
    found = (
        code for sentence in sentences if MEANS_MISSING.search(sentence) for code in CODE_OF_MISSING.findall(sentence)
    )
    return list(dict.fromkeys(found))


def _files(question: str, hidden: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the path of each file that the question names, with the expression that reads it. If the question names no
    file to read and the turn has exactly one table, JSON document or log, yield that one."""
    given = []
    workbook = ""
    for line in (line for text in hidden for line in text.splitlines()):
        sheet = SHEET.match(line) if workbook and len(line) <= MAX_FACT else None
        reads = _expression(line[sheet.end() :], workbook) if sheet and _is_named(sheet["sheet"], question) else ""
        if sheet and reads:
            yield sheet["sheet"], reads
        fact = FACT.match(line) if len(line) <= MAX_FACT else None
        path = (fact["path"] or fact["input"]) if fact else ""
        if fact and (expression := _expression(line[fact.end() :], path)):
            word = re.escape(path)
            mention = re.search(rf"(?<![\w./\\-]){word}(?!\w)", question)
            if mention and not re.search(rf"{WRITES}{word}(?!\w)", question, re.I):
                workbook = path
                yield path, expression
            if fact["input"] and (expression.startswith(("pd.", "json.")) or expression.endswith(LINES)):
                given.append((path, expression))
    if len(given) == 1 and not FILE_NAME.search(WRITTEN_FILE.sub("", question)):
        yield given[0]


def _without_other_sheets(files: Mapping[str, str], question: str, hidden: Sequence[str]) -> dict[str, str]:
    """Return ``files`` without the first sheet of a workbook if the question names another one and not the first."""
    sheets = {key for key, reads in files.items() if "sheet_name='" in reads}
    others = {path: reads for path, reads in files.items() if path not in sheets and reads.startswith("pd.read_excel(")}
    first = [match[1] for text in hidden for match in FIRST_SHEET.finditer(text)]
    is_first = len(others) != 1 or not sheets or any(_is_named(one, question) for one in first)
    return {path: reads for path, reads in files.items() if is_first or path not in others}


def _is_named(sheet: str, question: str) -> bool:
    """Return whether the question names the sheet, in any case, or speaks of several sheets."""
    return bool(SEVERAL_SHEETS.search(question)) or is_sheet_named(sheet, question)


def _expression(text: str, path: str) -> str:
    """Return the expression at the beginning of ``text`` if it does nothing but read ``path``, otherwise an empty
    string."""
    for end in [at + 1 for at, char in enumerate(text) if char == ")"][:MAX_PARENTHESES]:
        try:
            tree = ast.parse(text[:end], mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        rest = text[end:]
        if not rest.startswith("."):
            return text[:end] if _is_only_read(tree, path) else ""
    return ""


def _is_only_read(tree: ast.Expression, path: str) -> bool:
    if not all(isinstance(node, NODES) for node in ast.walk(tree)):
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    reads = [node for node in calls if _function_name(node) in READERS]
    paths = [node.args[0].value for node in reads if node.args and isinstance(node.args[0], ast.Constant)]
    return (
        isinstance(tree.body, ast.Call)
        and paths == [path]
        and all(len(node.args) <= 1 for node in calls)
        and all(node.arg in OPTIONS for node in ast.walk(tree) if isinstance(node, ast.keyword))
        and all(node.id in MODULES for node in ast.walk(tree) if isinstance(node, ast.Name))
        and all(node.attr in READERS | CONVERTERS for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    )


def _function_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _find_name(question: str) -> str:
    """Return the name of a variable that the user's text asks for; an empty string if it asks for none."""
    for pattern in GIVEN:
        for name in pattern.findall(question):
            if not NO_NAME.fullmatch(name) and not keyword.iskeyword(name):
                return str(name)
    return ""


def _free(path: str, taken: set[str]) -> str:
    """Return an unused variable name derived from the file's name."""
    last = path.replace("\\", "/").rpartition("/")[2]
    stem, _, extension = last.rpartition(".") if "." in last else (last, "", "2")
    name = re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_").lower() or "data"
    name = f"data_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
    while name in taken:
        name = f"{name}_{extension}"
    return name
