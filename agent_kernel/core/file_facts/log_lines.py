"""Recognises the form that the lines of a log share, so that code reads the log as a table.

``2025-11-01 07:00:02 ERROR web request took 224 ms`` becomes the columns time, level, source and ms. A small model
filters and groups a table correctly far more often than it takes lines of text apart. Standard library only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from agent_kernel.core.file_facts.column_types import is_pandas_time

T = TypeVar("T")

MIN_LINES = 5
MAX_LINES = 200
"""Number of lines from which the form is inferred."""
MOST = 0.9
"""Share of the lines that must have a field at a position."""
ENOUGH = 0.8
"""Share of the lines that must have all fields. Other lines keep their time and level, and a message."""
STAMPED = 0.2
"""Share of the lines that begin with a time in a log whose records have several lines."""
FEW_SOURCES = 20
MAX_VALUES = 8
RARE = 0.05
"""Share of the lines in which a key or a unit must occur to become a column."""
LINE = 1_000
"""Maximum number of characters of a line from which the form is inferred."""

CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?"
ZONE = r"(?:Z| ?[+-]\d\d:?\d\d)?"
STAMP = (
    rf"\d{{4}}[-/]\d\d[-/]\d\d(?:[T ]|, ){CLOCK}{ZONE}"
    rf"|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}},? {CLOCK}"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    rf"|{CLOCK}"
)
"""Matches a date with a time, or a time of day, at the beginning of a line."""
ISO = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]{CLOCK}(?P<zone>{ZONE})")
SYSLOG_TIME = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d")
TIME_FORMATS = {
    "%d/%b/%Y:%H:%M:%S %z": re.compile(r"\d+/[A-Z][a-z]{2}/\d+:[\d:]+ [+-]\d{4}"),
    "%b %d %H:%M:%S": SYSLOG_TIME,
}
"""Forms of times that pandas does not recognise, with patterns that find them."""
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|min|h))+")
"""Matches a duration that pandas recognises: ``231.8ms``, ``1m30s``."""
TOKEN = re.compile(
    rf'\[?(?:{STAMP})\]?(?=[\s:,|-]|$)|\[[^\]]{{0,80}}\]|[\w.-]{{1,40}}="[^"]{{0,200}}"|"[^"]{{0,200}}"|\S+'
)
"""Matches a time, a text in brackets or quotes, or a word. The lengths are limited so that a line of brackets that
never close takes no longer than others."""
PAIR = re.compile(r'\b([A-Za-z_]\w{0,40})=("[^"]{0,200}"|[^\s,;]+)')
LEVELS = frozenset(
    {"trace", "debug", "info", "notice", "warn", "warning", "error", "err", "critical", "crit", "fatal", "severe"}
    | {"panic", "alert", "emerg"}
)
UNITS = frozenset(
    {"ms", "s", "sec", "secs", "seconds", "min", "minutes", "h", "hours", "bytes", "b", "kb", "mb", "gb", "kib", "mib"}
    | {"rows", "items", "percent"}
)
SHORT_UNITS = {"s": "seconds", "sec": "seconds", "secs": "seconds", "min": "minutes", "h": "hours"}
"""Names of columns for units whose abbreviation says too little."""
NUMBER = r"-?\d+(?:\.\d+)?"
ADDRESS = r"(?:\d{1,3}\.){3}\d{1,3}"
QUANTITY = re.compile(rf"(?<![\w=.]){NUMBER} ?([A-Za-z]+)\b")
"""Matches a number with a unit; the group is the unit."""
PROGRAM = re.compile(r"([^\s\[\]:]+)(?:\[\d+\])?:")
"""Matches the program of a syslog line, with the number of its process: ``sshd[412]:``."""
DELIMITERS = frozenset({"-", "|", ":", "--", ">"})
SENDER = re.compile(r"(\w[\w .-]{0,39}): ")
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
ACCESS = (
    r'^(?P<ip>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+)[^"]*" '
    r"(?P<status>\d+) (?:(?P<bytes>\d+)|-)"
)
"""Matches a line of the common log format of web servers."""
REQUEST = r'"(?P<method>[A-Z]+) (?P<path>[^\s"]+)[^"]*"'
"""Matches the request of a line in another format: ``"GET /search HTTP/1.1"``."""
REFERRER_AND_AGENT = r' "(?P<referrer>[^"]*)" "(?P<agent>[^"]*)"'
"""Matches the two fields that the combined log format adds."""


class LogTable(NamedTuple):
    """How code reads a log as a table. ``pattern`` is a regular expression with one named group for each column, and
    ``types`` are the pandas types of the columns that are not text. ``cells`` are the texts of each column, and
    ``conversions`` are statements that convert a column of text, with ``{}`` in the place of the column.
    ``has_other_lines`` is True if there are lines that do not have the form."""

    pattern: str
    types: Mapping[str, str]
    cells: Mapping[str, Sequence[str]]
    conversions: Mapping[str, str]
    has_other_lines: bool


class _Field(NamedTuple):
    """One position of the lines: a regular expression for its text, the name of its column ("" for a text that is the
    same in all lines), and the text between ``before`` and ``after`` that is the value."""

    value: str
    name: str = ""
    before: str = ""
    after: str = ""

    def pattern(self) -> str:
        value = f"(?P<{self.name}>{self.value})" if self.name else self.value
        return f"{self.before}{value}{self.after}"


def log_table(text: str, *, whole: bool) -> LogTable | None:
    """Return how code reads the lines of ``text`` as a table; None if they have no common form. ``whole`` is False if
    more lines follow, which are not known and may lack some of the fields."""
    lines = [line for line in text.splitlines() if line.strip()]
    # A line that begins with a space continues the line before it, as the lines of a traceback do.
    first_lines = [line for line in lines if len(line) <= LINE and not line[0].isspace()]
    if len(first_lines) < MIN_LINES:
        return None
    pattern = _access_pattern(first_lines[:MAX_LINES]) or _common_pattern(first_lines, whole=whole)
    return _table_of(pattern, lines, whole=whole) if pattern else None


def _access_pattern(lines: Sequence[str]) -> str:
    patterns = (ACCESS + REFERRER_AND_AGENT, ACCESS)
    return next((pattern for pattern in patterns if _share(re.compile(pattern).match, lines) >= MOST), "")


def _common_pattern(lines: Sequence[str], *, whole: bool) -> str:
    """Return the regular expression of what the lines share: fields at their beginning, and values with a key or a unit
    after these. Return "" if that is not worth a table."""
    stamped = [line for line in lines if re.match(rf"\[?(?:{STAMP})", line)]
    # The lines of a traceback have no time, as opposed to all others.
    lines = stamped if len(stamped) >= max(MIN_LINES, STAMPED * len(lines)) else lines
    fields, spans, rests = _fields_of(lines[:MAX_LINES])
    names = {field.name for field in fields}
    values = _values_of(rests, names)
    if not names & {"time", "level"} and len(names - {""}) + len(values) < 2:
        return ""
    gaps = _gaps(lines, spans)
    parts = [gap + field.pattern() for gap, field in zip(gaps, fields, strict=True)]
    ahead = "".join(f"(?:(?=.*?{value}))?" for value in values.values())
    if "source" not in {*names, *values}:
        ahead += _source_of(rests)
    has_message = any(PAIR.sub("", rest).strip() for rest in rests)
    message = r"(?:\s*(?P<message>.*))?" if has_message else ""
    strict = f"^{''.join(parts)}{ahead}{message}"
    if whole and all(map(re.compile(strict).match, lines)):
        return strict
    # Lines that lack the fields after the time and the level keep these two, and their text as a message.
    first = next((at for at, field in enumerate(fields) if field.name not in ("time", "level")), len(fields))
    optional = f"(?:{''.join(parts[first:])})?" if parts[first:] else ""
    return rf"^{''.join(parts[:first])}{optional}{ahead}(?:\s*(?P<message>.*))?" if first else ""


def _fields_of(lines: Sequence[str]) -> tuple[list[_Field], list[list[tuple[int, int]]], list[str]]:
    """Return the fields that the lines share, the positions of each field in the lines that have all of them, and what
    follows the last field in each of these lines."""
    tokens = [list(TOKEN.finditer(line)) for line in lines]
    is_uniform = _share(lambda found: len(found) == len(tokens[0]), tokens) >= MOST
    fields: list[_Field] = []
    at = 0
    while len(present := [found for found in tokens if len(found) > at]) >= ENOUGH * len(lines):
        following = [found[at + 1].group() if len(found) > at + 1 else "" for found in present]
        is_delimited = _share(DELIMITERS.__contains__, following) >= MOST
        field = _field([found[at].group() for found in present], is_column=is_uniform or is_delimited)
        fits = re.compile(field.pattern()).fullmatch if field else None
        kept = [found for found in present if fits and fits(found[at].group())]
        if not field or len(kept) < max(MOST * len(present), ENOUGH * len(lines)):
            break
        fields.append(field)
        tokens, at = kept, at + 1
    fields = _with_names(fields)
    ends = [[found[position].span() for position in range(at)] for found in tokens]
    rests = [found[0].string[found[at - 1].end() if at else 0 :].strip() for found in tokens]
    return fields, ends, rests


def _field(texts: Sequence[str], *, is_column: bool) -> _Field | None:
    """Return the field whose texts in the lines are ``texts``; None if they have no common form. ``is_column`` means
    that the word is a field, whatever it is: all lines have the same number of words, or a delimiter follows it."""
    common, often = Counter(texts).most_common(1)[0]
    if _share(re.compile(r"[A-Za-z_]\w*=.*").fullmatch, texts) >= MOST:
        return None  # ``_values_of`` finds values with a key in any order
    if _share(re.compile(rf"\[?(?:{STAMP})\]?").fullmatch, texts) >= MOST:
        brackets = (r"\[", r"\]") if common[0] == "[" else ("", "")
        return _Field(_time_value(common.strip("[]")), "time", *brackets)
    if _share(re.compile(REQUEST).fullmatch, texts) >= MOST and common[1:].partition(" ")[0] in METHODS:
        return _Field(REQUEST)
    before, after = _frame_of(common)
    frame = (re.escape(before), re.escape(after))
    bodies = [text[len(before) : len(text) - len(after)] for text in texts if text.endswith(after)]
    if _share(lambda body: body.casefold() in LEVELS, bodies) >= MOST:
        return _Field(r"\w+", "level", *frame)
    if often >= MOST * len(texts) and not re.fullmatch(rf"{NUMBER}[A-Za-z%]*", common):
        return _Field(re.escape(common).replace(r"\-", "-"))
    programs = [match[1] for text in texts if (match := PROGRAM.fullmatch(text))]
    if len(programs) >= MOST * len(texts) and _are_few(set(programs), programs):
        return _Field(r"[^\s\[\]:]+", "source", "", r"(?:\[\d+\])?:")
    return _word(bodies, frame, is_column=is_column)


def _word(bodies: Sequence[str], frame: tuple[str, str], *, is_column: bool) -> _Field | None:
    """Return the field of words, numbers, addresses or paths; None if the texts differ too much to be a column."""
    if units := Counter(match[1] for body in bodies if (match := re.fullmatch(rf"{NUMBER}([A-Za-z%]*)", body))):
        unit, often = units.most_common(1)[0]
        if often >= MOST * len(bodies):
            name = SHORT_UNITS.get(unit, unit) if unit.isidentifier() else "number"
            return _Field(NUMBER, name, frame[0], re.escape(unit) + frame[1])
    named: tuple[tuple[str, str, Callable[[str], object]], ...] = (
        (ADDRESS, "ip", re.compile(ADDRESS).fullmatch),
        (r"\w+", "method", METHODS.__contains__),
        (r"/\S*", "path", lambda body: body.startswith("/")),
    )
    for value, name, fits in named:
        if _share(fits, bodies) >= MOST:
            return _Field(value, name, *frame)
    # Without marks around it, a word of lines that have different numbers of words can be the first of a message.
    if not is_column and not (any(frame) and _are_few(set(bodies), bodies)):
        return None
    inner = rf"[^{frame[1]}]+" if frame[1] else r"\S+"
    return _Field(inner, "source", *frame)


def _with_names(fields: Sequence[_Field]) -> list[_Field]:
    """Return the fields with names that differ. A number is named after the unit that follows it, or after the word
    before it."""
    named: list[_Field] = []
    taken: set[str] = set()
    for at, field in enumerate(fields):
        name = field.name
        if name == "number":
            following = fields[at + 1] if at + 1 < len(fields) else _Field("")
            before = fields[at - 1] if at else _Field("")
            words = [other.value.strip(":=,()") for other in (following, before) if not other.name]
            units = [word for word in words[:1] if following.name == "" and word.casefold() in UNITS]
            units += ["status"] if before.value == REQUEST else []
            name = next((SHORT_UNITS.get(word, word) for word in [*units, *words[::-1]] if word.isidentifier()), name)
        number = 2
        while name and name in taken:
            name = f"{field.name}{number}"
            number += 1
        taken.add(name)
        named.append(field._replace(name=name))
    return named


def _frame_of(text: str) -> tuple[str, str]:
    """Return the brackets and marks around the word that ``text`` is."""
    match = re.fullmatch(r"([\[(<\"]*).*?([\])>\":,;]*)", text)
    return (match[1], match[2]) if match and len(match[0]) > len(match[1]) + len(match[2]) else ("", "")


def _time_value(text: str) -> str:
    """Return the regular expression of a time such as ``text``. It begins with a digit or the name of a month, so that
    the lines of a traceback do not match."""
    if SYSLOG_TIME.fullmatch(text):
        return r"[A-Z]\w\w +\d+ [\d:]+"
    return r"\d\S+" + r" \d\S+" * text.count(" ")


def _value_of(texts: Sequence[str]) -> str:
    """Return the regular expression of the value of a key: a number, with the unit after it if all ``texts`` have the
    same, or a text."""
    numbers = [match for text in texts if (match := re.fullmatch(rf"{NUMBER}([A-Za-z%]*)", text))]
    units = {match[1] for match in numbers}
    if len(numbers) == len(texts) and len(units) == 1:
        return rf"(?P<{{key}}>{NUMBER}){re.escape(units.pop())}"
    return r'(?P<{key}>"[^"]*"|[^\s,;]+)' if any(text.startswith('"') for text in texts) else r"(?P<{key}>[^\s,;]+)"


def _values_of(rests: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Return the names and regular expressions of the keys (``user=ada``) and units (``in 3.1 s``) that occur in the
    rests of several lines."""
    enough = max(3, RARE * len(rests))
    pairs = [pair for rest in rests for pair in PAIR.findall(rest)]
    keys = Counter(key for key, _ in pairs if key not in {*taken, "message"})
    values: dict[str, str] = {}
    for key in [key for key, count in keys.most_common(MAX_VALUES) if count >= enough]:
        values[key] = rf"\b{key}=" + _value_of([value for other, value in pairs if other == key]).replace("{key}", key)
    units = Counter(unit for rest in rests for unit in QUANTITY.findall(rest) if unit.casefold() in UNITS)
    for unit in [unit for unit, count in units.most_common(MAX_VALUES) if count >= enough]:
        if (name := SHORT_UNITS.get(unit, unit)) not in {*taken, *values}:
            values[name] = rf"\b(?P<{name}>{NUMBER}) ?{unit}\b"
    return values


def _source_of(rests: Sequence[str]) -> str:
    """Return the regular expression for the beginning of the rests that has few values, as the part of a program has
    that wrote a line, or the sender of a message; otherwise "". A word without a colon stays in the message."""
    senders = [match[1] for rest in rests if (match := SENDER.match(rest))]
    if len(senders) >= MOST * len(rests) and _are_few(set(senders), senders):
        return r"(?:\s*(?P<source>[^:]+):)?"
    words = [rest.split(" ")[0] for rest in rests]
    return r"(?:(?=\s*(?P<source>\S+)))?" if _are_few(set(words), words) else ""


def _are_few(distinct: set[str], words: Sequence[str]) -> bool:
    return 2 <= len(distinct) <= FEW_SOURCES and 2 * len(distinct) <= len(words)


def _gaps(lines: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> list[str]:
    """Return the expressions for the spaces before each field: nothing before the first, and one space if all lines
    have one."""
    width = len(spans[0]) if spans else 0
    gaps = [{span[at][0] - (span[at - 1][1] if at else 0) for span in spans} for at in range(width)]
    has_tab = any("\t" in line for line in lines)
    return ["" if gap == {0} else " " if gap == {1} and not has_tab else r"\s+" for gap in gaps]


def _table_of(pattern: str, lines: Sequence[str], *, whole: bool) -> LogTable | None:
    """Return the table that ``pattern`` gives; None if too few of the lines have the form."""
    matches = [match for match in map(re.compile(pattern).match, lines) if match]
    cells = {name: [match[name] or "" for match in matches] for name in re.compile(pattern).groupindex}
    if len(matches) < MIN_LINES or (not {"time", "level"} & set(cells) and len(matches) < ENOUGH * len(lines)):
        return None
    types: dict[str, str] = {}
    conversions: dict[str, str] = {}
    for name, column in cells.items():
        present = [cell for cell in column if cell]
        if not present:
            continue
        if f"(?P<{name}>{NUMBER})" in pattern:
            types[name] = "Int64" if whole and not any("." in cell for cell in present) else "Float64"
        elif rf"(?P<{name}>\d+)" in pattern:
            types[name] = "Int64"
        elif all(map(ISO.fullmatch, present)) and all(map(is_pandas_time, present)):
            zones = {match["zone"] for match in map(ISO.fullmatch, present) if match}
            # Other zones differ in summer, and a conversion to UTC would change the hour.
            if zones in ({""}, {"Z"}):
                types[name] = "datetime64[ns]" if zones == {""} else "datetime64[ns, UTC]"
        elif all(map(DURATION.fullmatch, present)):
            conversions[name] = f"{name}_seconds = pd.to_timedelta({{}}).dt.total_seconds()"
        elif name == "time":
            for form, fits in TIME_FORMATS.items():
                if all(map(fits.fullmatch, present)):
                    conversions[name] = f"{name}_date = pd.to_datetime({{}}, format={form!r})"
    return LogTable(pattern, types, cells, conversions, len(matches) < len(lines))


def _share(fits: Callable[[T], object], items: Sequence[T]) -> float:
    return sum(bool(fits(item)) for item in items) / len(items) if items else 0.0
