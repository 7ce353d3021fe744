"""Writes answers where a small model's own answers are unreliable: after its code has failed or has changed nothing,
and after an output that has several rows or is a table without rows. The functions have no side effects.

A model's sentence about a table is kept only if it names, for each number that it states, the row with that number. If
the rows consist of numbers only, it must instead state a number of every row. A sentence that fails this check is
replaced by the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_kernel.core.messages import IMAGE_NOTE, Message
from agent_kernel.core.programs.answer_form import COUNTS, DECIMALS, SLOT, values_in_form
from agent_kernel.core.programs.program_outcome import failed_line

FAILED = "I did not manage to do this. The last try ended with: {error}"
OUT_OF_TIME = "I did not manage to do this: the code ran out of time."
FAILED_LINE = "The line that failed: `{line}`"
UNCHANGED = "I did not manage to do this. The last try defined {function} again without any change."
TRIED_BEFORE = "An earlier try ended with: {error}"
MAX_LINE = 200
ROWS = "The result:\n\n{rows}"
MAX_ROWS = 40
NO_ROWS = "The result has no rows."
EMPTY_TABLE = re.compile(r"Empty DataFrame\nColumns: .*\nIndex: .*|Series\(\[\], .*\)")
"""Matches how pandas prints a table without rows."""
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
WORD = re.compile(r"[^\W\d_][\w'-]*")
WARNING = re.compile(r"(?:line \d+: )?[A-Za-z]\w*Warning: .*")
FOOTER = re.compile(
    r"Name: .*dtype: \w+|dtype: \w+|\[\d+ rows x \d+ columns\]"
    rf"|{IMAGE_NOTE}|\((?:A draft|Draft)\b.*\)|\(no output\)|{WARNING.pattern}"
)
PRODUCED = re.compile(r"^Files:\n- ", re.MULTILINE)
"""Finds the beginning of the list of files that the code created, in the text of a result."""
EACH = re.compile(
    r"\b(?:each|every|all|both|respective(?:ly)?|list|table|rows|per|by|head|top|first \w+|last \w+)\b", re.I
)
"""Finds words in a question that ask for all rows of the output."""
HIDDEN = re.compile(r"HiddenError: ([^\n]*?\.) Correct [^\n]*")
"""Matches the refusal of a corrected cell that hides the error (``hidden_errors``)."""
ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Iteration)\b(?::.*)?")


FACTS = re.compile(
    r"(?:Columns of|Types of the columns of|Keys of|Names that exist|Names in|Attributes of|Files in)\b[^:]*:"
    r"|[^:]* (?:has the (?:shape|type)|is not installed\.) "
)
"""Matches the beginning of a line of hints about an error (``error_hints``)."""
FORM = re.compile(
    r"\bexact(?:ly)? (?:in )?(?:this|the following) form(?:at)?\b|\b(?:in|as|with) (?:this|the following) form(?:at)?\b"
    r"|\b(?:answer|reply|respond)(?: only| just)? with (?:only|just|nothing but)\b|\bnothing else\b",
    re.IGNORECASE,
)
"""Finds words with which a question demands a form of the answer."""


def asks_for_form(question: str) -> bool:
    """Return whether the question demands an exact form of the answer, so that a sentence around the value would be
    wrong."""
    return bool(SLOT.search(question) or FORM.search(question))


def error_line(text: str) -> str:
    """Return the line of a tool result that states the error: the last line with an exception, otherwise the last line
    that is not a note in parentheses."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    error_lines = [line for line in lines if ERROR.fullmatch(line)]
    no_notes = [line for line in lines if not (line.startswith("(") and line.endswith(")"))]
    return (error_lines or no_notes or lines or ["an error"])[-1]


def error_facts(text: str) -> str:
    """Return the line of hints about the error that ``sandbox.worker.error_hints`` writes before the traceback of a
    tool result; an empty string if there is none."""
    lines = text.partition("Traceback")[0].strip().splitlines()
    return lines[-1] if lines and FACTS.match(lines[-1]) else ""


def plain(results: Sequence[Message], rows: Sequence[str], question: str, unchanged: str = "") -> str:
    """Return the answer that can be written without the model, or an empty string. Such an answer consists of the
    values that the program printed in the demanded form, a note that the table has no rows, the rows if the question
    asks for them, or the error of the last call. ``unchanged`` is the function that the last call should have changed
    but did not."""
    if unchanged:
        return UNCHANGED.format(function=unchanged)
    text = results[-1].text
    last_line = next(reversed(_lines_of(text)), "")
    if results[-1].status == "success" and (form := values_in_form(text, question, last_line)):
        return form
    if results[-1].status == "success" and EMPTY_TABLE.fullmatch("\n".join(_lines_of(results[-1].text))):
        return NO_ROWS
    return format_rows(rows) if rows and EACH.search(question) and not asks_for_form(question) else failure(results)


def failure(results: Sequence[Message]) -> str:
    """Return an answer that reports the failure of the last call: its error, the line that failed, and the errors of
    earlier calls. Return an empty string if the last call did not fail."""
    last = results[-1]
    if last.status not in ("error", "timeout"):
        return ""
    error = error_line(last.text) if last.status == "error" else ""
    parts = [FAILED.format(error=_without_advice(error)) if error else OUT_OF_TIME]
    line = failed_line(last.text) if error else ""
    if line and "`" not in line and len(line) <= MAX_LINE:
        parts.append(FAILED_LINE.format(line=line))
    before = dict.fromkeys(error_line(result.text) for result in results[:-1] if result.status == "error")
    parts += [TRIED_BEFORE.format(error=_without_advice(result)) for result in before if result != error]
    return "\n\n".join(parts)


def _without_advice(error: str) -> str:
    """Return the error without the words that are meant for the model, if it is the refusal of a correction."""
    refused = HIDDEN.fullmatch(error)
    return refused[1] if refused else error


def rows_of(output: str) -> list[str]:
    """Return the rows of an output, without the lines that pandas and agent-kernel add after them. Return an empty list
    if there are fewer than two rows."""
    rows = _lines_of(output)
    return rows if len(rows) > 1 else []


def without_warnings(output: str) -> str:
    """Return the output without lines that are warnings of libraries, because a small model that reads a warning
    explains it instead of the result. If all lines are warnings, return the output unchanged."""
    lines = [line for line in output.splitlines() if not WARNING.fullmatch(line.strip())]
    return "\n".join(lines) if any(map(str.strip, lines)) else output


def _lines_of(output: str) -> list[str]:
    lines = [line.rstrip() for line in PRODUCED.split(output)[0].strip("\n").splitlines()]
    return [line for line in lines if line.strip() and not FOOTER.fullmatch(line.strip())]


def format_rows(rows: Sequence[str]) -> str:
    """Return the rows as an indented block of Markdown. A fenced block would later look like a call to the model."""
    lines = [f"    {row}" for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        lines.append(f"    ... {len(rows) - MAX_ROWS} more rows")
    return ROWS.format(rows="\n".join(lines))


def with_true_dates(sentence: str, output: str, question: str) -> str:
    """Return the sentence, in which the number from the output replaces each name of a month or weekday that the output
    does not support. A small model that reads ``8`` may write January.

    A name is supported if the question or the output contains it or its first three letters, or if the output contains
    its number (1 to 12 for a month; 0 to 6 or 1 to 7 for a weekday, both beginning with Monday). A name is replaced
    only if the output has exactly one number that can stand for a month, or for a weekday."""
    supported_text = f"{question}\n{output}".lower()
    numbers = {int(number) for number in map(_plain, NUMBER.findall(output)) if number.isdecimal()}
    for names, values, word in ((MONTHS, range(1, 13), "month"), (WEEKDAYS, range(8), "day")):
        candidates = numbers & set(values)
        if len(candidates) != 1:
            continue
        (number,) = candidates
        for at, name in enumerate(names, values[0]):
            fits = number in ((at,) if word == "month" else (at, at + 1))
            supported = name.lower() in supported_text or re.search(rf"\b{name[:3].lower()}\b", supported_text)
            if not fits and not supported:
                sentence = re.sub(rf"\b{name}\b", f"{word} {number}", sentence)
    return sentence


def with_asked_decimals(sentence: str, output: str, question: str) -> str:
    """Return the sentence with those of its numbers that come from the output rounded to the number of decimals that
    the question asks for. Return it unchanged if the question asks for different numbers of decimals."""
    asked = {match.lower() for match in DECIMALS.findall(question)}
    if len(asked) != 1:
        return sentence
    (word,) = asked
    decimals = int(word) if word.isdecimal() else COUNTS.index(word)

    def round_number(match: re.Match[str]) -> str:
        number = match[0].rstrip(".,")
        more = len(number.partition(".")[2]) > decimals and number in output and number.count(".") == 1
        if not more or "e" in number or "," in number.partition(".")[2]:
            return match[0]
        value = f"{float(_plain(number)):{',' if ',' in number else ''}.{decimals}f}"
        return value + match[0][len(number) :]

    return NUMBER.sub(round_number, sentence)


def agrees(sentence: str, rows: Sequence[str], question: str) -> bool:
    """Return whether a sentence agrees with the rows. For each of its numbers that is not in the question, it must
    contain a word of every row with this number. For a row without words, it must contain a number of every row without
    words instead. A sentence without numbers must contain a word of a row that is not in the question."""
    sentence_words, question_numbers = (
        {word.lower() for word in WORD.findall(sentence)},
        set(map(_plain, NUMBER.findall(question))),
    )
    words = [{word.lower() for word in WORD.findall(row)} for row in rows]
    values = [set(map(_plain, NUMBER.findall(row))) for row in rows]
    numbers_in_sentence = [number for number in map(_plain, NUMBER.findall(sentence)) if number not in question_numbers]
    bare = [numbers for label, numbers in zip(words, values, strict=True) if not label]
    all_bare = all(any(_contains_number(number, numbers) for number in numbers_in_sentence) for numbers in bare)
    for number in numbers_in_sentence:
        theirs = [words[at] for at, numbers in enumerate(values) if _contains_number(number, numbers)]
        if not any(label & sentence_words if label else all_bare for label in theirs):
            return False
    asked_for = {word.lower() for word in WORD.findall(question)}
    return bool(numbers_in_sentence) or any((label - asked_for) & sentence_words for label in words)


def _plain(number: str) -> str:
    return number.rstrip(".,").replace(",", "")


def _contains_number(number: str, numbers: set[str]) -> bool:
    """Return whether ``numbers`` contains ``number``, or a number that gives ``number`` when it is rounded to as many
    decimals."""
    if number in numbers:
        return True
    decimals = len(number.partition(".")[2])
    try:
        return any(abs(float(number) - float(other)) <= 0.5 * 10**-decimals for other in numbers if "." in other)
    except ValueError:
        return False
