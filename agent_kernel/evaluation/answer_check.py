"""Decides whether the answer to a task is right.

A number is right if it agrees with the expected one to the decimals that the task requires; thousands separators,
exponents and words up to twelve are understood. Besides the right number, the answer may contain at most one number
that neither the question nor the task mentions, because a list of numbers that happens to contain the right one is not
an answer.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import FAILED
from agent_kernel.evaluation.task import Task

NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
OTHER_NUMBERS = 1
"""Maximum number of other numbers in a right answer. Numbers that the question or the task mentions do not count."""
NAMED_VALUE = re.compile(r"@(\w+)\[(.*?)\]", re.DOTALL)
PLAIN_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d*)(?:\.(\d*))?(?:e([-+]?\d+))?%?", re.IGNORECASE)
SLACK = 1.0001
"""Factor by which the tolerance of half a unit of the last decimal grows, because binary fractions are inexact."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The facts about an attempt by which its answer is judged. ``codes`` are the programs that ran in the last turn.
    ``holds`` and ``draws`` are the results of the task's expressions about variables and figures, None if the task
    has no such expression. ``shown`` is the last output of a program that succeeded, which the user sees above the
    answer. ``ran`` contains the names of the tools of which a call succeeded in any turn. ``fetched`` contains the
    paths of the task's pages that were requested."""

    answer: str
    codes: tuple[str, ...] = ()
    holds: bool | None = None
    draws: bool | None = None
    shown: str = ""
    ran: frozenset[str] = frozenset()
    fetched: frozenset[str] = frozenset()


def reason_wrong(task: Task, observed: Observation, *, code_is_chat: bool = False) -> str:
    """Return the reason why the answer is wrong, or an empty string if it is right. ``code_is_chat`` allows code in
    tasks of the kind chat, for agents that answer only by running code.

    For a task of the kind table, the answer is also right if the shown output would be right as an answer.
    """
    if task.kind == "table" and observed.shown:
        in_output = replace(observed, answer=observed.shown, shown="")
        if not reason_wrong(task, in_output, code_is_chat=code_is_chat):
            return ""
    if forbidden := observed.ran & set(task.forbidden):
        return f"ran the forbidden tool {min(forbidden)}"
    if left := set(task.ran) - observed.ran:
        return f"did not run {min(left)}"
    if left := set(task.fetched) - observed.fetched:
        return f"did not fetch {min(left)}"
    if not observed.answer.strip() and not (task.holds or task.draws):
        return "no answer"
    if task.is_chat and observed.codes and not code_is_chat:
        return "ran code for chat"
    if observed.holds is False:
        return "the variables are not as asked"
    if observed.draws is False:
        return "no such picture"
    if (task.says or task.number is not None) and observed.answer.startswith(FAILED.format(error="")):
        return "reports a failure"  # the text of the error may contain the expected word
    if missing := [pattern for pattern in task.says if not re.search(pattern, observed.answer, re.IGNORECASE)]:
        return f"does not say {missing[0]}"
    if present := [pattern for pattern in task.never if re.search(pattern, observed.answer, re.IGNORECASE)]:
        return f"says {present[0]}"
    return _reason_number_wrong(task, observed.answer) or _reason_value_wrong(task, observed.answer)


def numbers(text: str) -> list[float]:
    """Return every number in a text. Numbers up to twelve may also be written in words."""
    figures = [float(match[0].replace(",", "").replace("−", "-")) for match in NUMBER.finditer(text)]
    words = [float(WORDS.index(word)) for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS]
    return figures + words


def named_values(text: str) -> dict[str, str]:
    """Return the values that a text states in the form ``@name[value]``, by name. If it states a name twice, the last
    value counts."""
    return {name: value.strip() for name, value in NAMED_VALUE.findall(text)}


def is_same_value(expected: str, stated: str) -> bool:
    """Return whether two values of the ``@name[value]`` form agree.

    Two numbers agree if ``stated``, rounded to the decimals of ``expected``, equals ``expected``. If ``expected`` has
    no decimals, the two must be equal. Other texts agree if they are equal except for case, white space and quotes.
    """
    number, near = _parse_number(expected)
    other, _ = _parse_number(stated)
    if number is not None and other is not None:
        return abs(number - other) <= near
    return _normalize(expected) == _normalize(stated)


def _parse_number(text: str) -> tuple[float | None, float]:
    """Return the number that the text states, and the tolerance for a comparison with it. Return (None, 0) if the text
    is not a number."""
    plain = text.strip().replace("−", "-")
    match = PLAIN_NUMBER.fullmatch(plain)
    if match is None or not any(char.isdigit() for char in plain):
        return None, 0.0
    value = float(plain.rstrip("%").replace(",", ""))
    decimals = len(match[1] or "") - int(match[2] or 0)
    near = 0.5 * 10.0**-decimals * SLACK if match[1] or match[2] else 1e-9
    return (value, near) if math.isfinite(value) else (None, 0.0)


def _normalize(text: str) -> str:
    return " ".join(text.casefold().replace('"', "").replace("'", "").split())


def _reason_number_wrong(task: Task, answer: str) -> str:
    if task.number is None:
        return ""
    near = 0.5 * 10**-task.decimals * SLACK if task.decimals else 1e-9
    stated = numbers(answer)
    if not any(abs(number - task.number) <= near for number in stated):
        return f"does not say {task.number:g}"
    known = [*numbers(" ".join(task.prompts)), *task.also]
    wrong = {number for number in stated if abs(number - task.number) > near}
    others = {number for number in wrong if not any(abs(number - known_number) < 1e-9 for known_number in known)}
    return "says other numbers as well" if len(others) > OTHER_NUMBERS else ""


def _reason_value_wrong(task: Task, answer: str) -> str:
    given = named_values(answer)
    for name, expected in task.values.items():
        if name not in given:
            return f"does not give @{name}"
        if not is_same_value(expected, given[name]):
            return f"gives {given[name]!r} as @{name}, not {expected!r}"
    return ""
