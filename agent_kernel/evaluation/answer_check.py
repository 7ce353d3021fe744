"""Decides whether an answer is right.

A number counts when it is there as it should be rounded, in whatever way numbers are written. Of other numbers, which
are neither in the question nor known to belong to the answer, at most one may stand beside it: a list that happens to
have the right one in it is no answer.
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
"""How many numbers without a reason may stand beside the right one."""
NAMED_VALUE = re.compile(r"@(\w+)\[(.*?)\]", re.DOTALL)
PLAIN_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d*)(?:\.(\d*))?(?:e([-+]?\d+))?%?", re.IGNORECASE)
SLACK = 1.0001
"""Half a unit of the last decimal is still right; this is for what binary fractions make of it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was there after the last turn, in which the programs ``codes`` ran; ``holds`` and ``draws`` are None where
    the task does not ask. ``shown`` is the last output of a program that succeeded, which the person sees above the
    answer. ``ran`` are the tools with a call that succeeded in any turn, ``fetched`` the pages of the task that were
    requested."""

    answer: str
    codes: tuple[str, ...] = ()
    holds: bool | None = None
    draws: bool | None = None
    shown: str = ""
    ran: frozenset[str] = frozenset()
    fetched: frozenset[str] = frozenset()


def reason_wrong(task: Task, observed: Observation, *, code_is_chat: bool = False) -> str:
    """Return why the answer is not right, or "" if it is. ``code_is_chat``: for agents that can only speak by code.

    A task of the kind table is right as well if the output that is shown matches instead of the answer."""
    if task.kind == "table" and observed.shown:
        in_output = replace(observed, answer=observed.shown, shown="")
        if not reason_wrong(task, in_output, code_is_chat=code_is_chat):
            return ""
    if done := observed.ran & set(task.forbidden):
        return f"ran the forbidden tool {min(done)}"
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
        return "reports a failure"  # its error may have the right word in it
    if missing := [pattern for pattern in task.says if not re.search(pattern, observed.answer, re.IGNORECASE)]:
        return f"does not say {missing[0]}"
    if present := [pattern for pattern in task.never if re.search(pattern, observed.answer, re.IGNORECASE)]:
        return f"says {present[0]}"
    return _reason_number_wrong(task, observed.answer) or _reason_value_wrong(task, observed.answer)


def numbers(text: str) -> list[float]:
    """Return every number in a text, in figures or, up to twelve, in words."""
    figures = [float(match[0].replace(",", "").replace("−", "-")) for match in NUMBER.finditer(text)]
    words = [float(WORDS.index(word)) for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS]
    return figures + words


def named_values(text: str) -> dict[str, str]:
    """Return the values that a text gives as ``@name[value]``; the last one where a name comes twice."""
    return {name: value.strip() for name, value in NAMED_VALUE.findall(text)}


def is_same_value(expected: str, given: str) -> bool:
    """Compare two values of the ``@name[value]`` form.

    Numbers agree if ``given``, rounded to the decimals of ``expected``, is ``expected``; a number without decimals must
    be met exactly. Other text agrees if it is the same but for case, white space and quotes."""
    number, near = _parse_number(expected)
    other, _ = _parse_number(given)
    if number is not None and other is not None:
        return abs(number - other) <= near
    return _normalize(expected) == _normalize(given)


def _parse_number(text: str) -> tuple[float | None, float]:
    """Return a number and how far another one may be from it; (None, 0) if the text is none."""
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
    others = {n for n in stated if abs(n - task.number) > near and not any(abs(n - k) < 1e-9 for k in known)}
    return "says other numbers as well" if len(others) > OTHER_NUMBERS else ""


def _reason_value_wrong(task: Task, answer: str) -> str:
    given = named_values(answer)
    for name, expected in task.values.items():
        if name not in given:
            return f"does not give @{name}"
        if not is_same_value(expected, given[name]):
            return f"gives {given[name]!r} as @{name}, not {expected!r}"
    return ""
