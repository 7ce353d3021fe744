"""Decides by vote among programs that were written for the same question. Programs whose outcomes agree form a group,
and the largest group wins.

Execution-based voting: MBR-exec (arXiv 2204.11454), CodeT (arXiv 2207.10397). The functions have no side effects.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_kernel.core.messages import shorten
from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.core.programs.syntax_tree import parse_or_empty

OTHER_LINES = 8
OTHER_CHARS = 600
"""Maximum characters of the result of the second largest group, which a person is shown after a close vote. OTHER_LINES
limits its lines."""
CLOSE_SHARE = 2 / 3
"""A vote is close if the winner has a smaller share of all tried programs than this, and the second group has at least
MIN_SECOND members."""
MIN_SECOND = 2
NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
"""Matches a number as a program prints it. ``number_check.number_parser`` is not used here: it reads prose of any
language, where ``1.234`` may be a thousand, and leaves out dates, which count in a vote."""
WORD = re.compile(r"[^\W\d_][\w'-]*")
FOOTER = re.compile(
    r"^(?:Name: .*|dtype: \S+|Length: .*|\[\d+ rows x \d+ columns\]|Out\[\d+\]:|\(no output\))$", re.MULTILINE
)
"""Matches lines that pandas and agent-kernel print in addition to a value. The vote ignores them."""
DISPLAY = re.compile(r"\b(?:np|numpy)\.\w+\((.*?)\)")
"""Matches a numpy number in the form of its repr, such as ``np.float64(1.5)``."""


@dataclass(frozen=True, slots=True)
class TriedProgram:
    """A program with the outcome of its trial. ``omits`` is the number of sentences of the question that it
    ignores, plus 1 if it prints an unusable value. ``answer`` has the printed values in the form that the question
    demands; only these are compared then. It is empty if the question demands no form, or if a value is missing."""

    code: str
    outcome: ProgramOutcome
    omits: int = 0
    answer: str = ""

    @property
    def ran(self) -> bool:
        return self.outcome.status == "success"


@dataclass(frozen=True, slots=True)
class Vote:
    """The result of a vote.

    ``winner`` is the index of the program to use, and ``agree`` the size of its group among the ``tried`` programs.
    ``omits`` is the number of sentences of the question that every program of this group ignores.
    ``other`` is the outcome of the first program of the second largest group, and ``other_agree`` the size of that
    group.
    """

    winner: int
    agree: int
    tried: int
    other: ProgramOutcome | None = None
    other_agree: int = 0
    omits: int = 0

    def is_settled_among(self, programs: int) -> bool:
        """Whether the winners are more than half of ``programs`` programs, of which some may not be tried yet, and
        ignore nothing, so that more samples are not needed."""
        return 2 * self.agree > programs and not self.omits

    @property
    def is_close(self) -> bool:
        return self.other_agree >= MIN_SECOND and self.agree < CLOSE_SHARE * self.tried

    @property
    def sentence(self) -> str:
        """A sentence for a person that says how many programs have the result that is shown."""
        if self.agree == self.tried:
            return f"All {self.tried} programs that were tried have this result."
        return f"{self.agree} of {self.tried} programs that were tried have this result."

    @property
    def disagreement(self) -> str:
        """The result of the second group for a person, in at most OTHER_LINES lines of output; empty if the vote was
        not close."""
        if self.other is None or not self.is_close:
            return ""
        return f"{self.other_agree} gave another result:\n{describe_outcome(self.other)}"

    @property
    def record(self) -> dict[str, int | bool]:
        """The numbers of the vote that are stored with the turn. The second group's result is not among them; it is in
        the turn's notice, from which secrets are removed."""
        return {
            "agree": self.agree,
            "tried": self.tried,
            "other_agree": self.other_agree,
            "close": self.is_close,
        }


def describe_outcome(outcome: ProgramOutcome) -> str:
    """Return the first lines of what a program printed, how many figures it showed, and which variables it made or
    changed, as plain text of at most about OTHER_CHARS characters."""
    lines = outcome.text.strip().splitlines()
    facts = lines[:OTHER_LINES]
    if len(lines) > OTHER_LINES:
        facts.append(f"({len(lines) - OTHER_LINES} more lines)")
    if outcome.figures:
        facts.append(f"({outcome.figures} figures)" if outcome.figures > 1 else "(1 figure)")
    if outcome.variables:
        facts.append(f"(with other contents of {', '.join(outcome.variables)})")
    return shorten("\n".join(facts), OTHER_CHARS)


def vote(programs: Sequence[TriedProgram]) -> Vote | None:
    """Return the result of the vote; None if no program ran without an error.

    Programs whose outcomes agree form a group. If no two outcomes agree, only the numbers of their last lines are
    compared, because programs often differ in what they print before the result. Groups are ranked by these rules, the
    first of which counts most: a group that shows or changes something precedes a group that does neither; a group with
    values in the form that the question demands precedes a group without them; a group that ignores fewer sentences of
    the question, a larger group, and a group whose demanded values occur more often among all programs come first. Of
    equal groups, the one with the earlier program in ``programs`` wins, so ``programs`` are ordered from the likeliest
    to the least likely.
    """
    views = [OutcomeView(program) for program in programs]
    groups = _groups(programs, views, OutcomeView.agrees)
    if not groups:
        return None
    if max(map(len, groups)) == 1:
        groups = _groups(programs, views, OutcomeView.ends_like)
    best, *others = sorted(
        groups,
        key=lambda group: (
            views[group[0]].is_empty,
            not programs[group[0]].answer,
            min(programs[at].omits for at in group),
            -len(group),
            -_shared_values(programs[group[0]], programs),
        ),
    )
    decided = Vote(best[0], len(best), len(programs), omits=min(programs[at].omits for at in best))
    if not others:
        return decided
    return replace(decided, other=programs[others[0][0]].outcome, other_agree=len(others[0]))


def _shared_values(program: TriedProgram, programs: Sequence[TriedProgram]) -> int:
    """Return how often the demanded values of the program occur among the demanded values of all programs. Values are
    counted one by one, because a program with one wrong value may have its other values right."""
    values = set(program.answer.splitlines())
    return sum(len(values & set(other.answer.splitlines())) for other in programs)


def _groups(
    programs: Sequence[TriedProgram],
    views: Sequence[OutcomeView],
    agree: Callable[[OutcomeView, OutcomeView], bool],
) -> list[list[int]]:
    """Return the indices of the programs that ran without an error, in groups. Each outcome of a group agrees with the
    outcome of the group's first program, as ``agree`` decides."""
    groups: list[list[int]] = []
    for index, one in enumerate(programs):
        if not one.ran:
            continue
        group = next((group for group in groups if agree(views[group[0]], views[index])), None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    return groups


class OutcomeView:
    """The parts of a program's outcome that the vote compares: numbers and words in order, figures, and the contents of
    variables. If two outcomes are compared, words that the code of either program contains are labels, which are not
    compared."""

    def __init__(self, program: TriedProgram) -> None:
        outcome = program.outcome
        text = program.answer or FOOTER.sub("", DISPLAY.sub(r"\1", outcome.text))
        literals = "" if program.answer else " ".join(_literals(program.code))
        labels = {match[0] for match in NUMBER.finditer(literals)}
        self.numbers = [match[0] for match in NUMBER.finditer(text) if match[0] not in labels]
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        self.last_numbers = [match[0] for match in NUMBER.finditer(last) if match[0] not in labels]
        self.words = [word.lower() for word in WORD.findall(text)]
        self.labels = {word.lower() for word in WORD.findall(literals)}
        self.figures = 0 if program.answer else outcome.figures
        self.variables = {} if program.answer else dict(outcome.variables)

    @property
    def is_empty(self) -> bool:
        return not (self.numbers or self.words or self.figures or self.variables)

    def ends_like(self, other: OutcomeView) -> bool:
        """Return whether the last lines of both outputs have the same numbers, at least one, and the figures agree."""
        return (
            bool(self.last_numbers)
            and self.figures == other.figures
            and len(self.last_numbers) == len(other.last_numbers)
            and all(map(_same_number, self.last_numbers, other.last_numbers))
        )

    def agrees(self, other: OutcomeView) -> bool:
        labels = self.labels | other.labels
        return (
            self.figures == other.figures
            and len(self.numbers) == len(other.numbers)
            and all(map(_same_number, self.numbers, other.numbers))
            and [word for word in self.words if word not in labels] == [w for w in other.words if w not in labels]
            and self.variables == other.variables
        )


def _same_number(first: str, second: str) -> bool:
    """Return whether two numbers are equal after both are rounded to the same number of decimals. The number with fewer
    decimals determines how many."""
    one, two = _value(first), _value(second)
    if one == two:
        return True
    decimals = min(_decimals(first), _decimals(second))
    return math.isclose(round(one, decimals), round(two, decimals), rel_tol=1e-9, abs_tol=1.01 * 10.0**-decimals / 2)


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def _decimals(number: str) -> int:
    mantissa, _, exponent = number.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return max(0, digits - int(exponent or 0))


def _literals(code: str) -> list[str]:
    """Return the string literals of the program, which it may print as labels."""
    nodes = ast.walk(parse_or_empty(code))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
