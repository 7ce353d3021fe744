"""Defines the result of one task, with all the data that a person needs to judge the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class Program:
    """One program that the agent ran. ``status`` and ``output`` are those of its tool result; ``status`` is empty if
    the call has no result."""

    code: str
    status: str
    output: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call of a tool. ``tool`` is the tool's name, and ``status`` the status of the result, empty if there
    is none."""

    tool: str
    status: str


@dataclass(frozen=True, slots=True)
class VoteResult:
    """A vote between several programs in a draft: ``tried`` is the number of programs, ``agree`` the number of those
    that gave the result that was used."""

    agree: int
    tried: int


@dataclass(frozen=True, slots=True)
class TaskTurn:
    """One turn of a task.

    ``calls`` are the calls of all tools in order; ``programs`` are the calls that contain code. ``notes`` are messages
    that only the model saw. ``questions`` are the questions that the agent asked the user. ``error`` is the error of
    the cell.

    ``state``, ``where``, ``model``, ``usage`` and ``record`` are those of the stored turn. The record contains the
    turn's notices, the user's decisions and, if programs were compared, the results of the votes.
    """

    prompt: str
    answer: str
    programs: tuple[Program, ...] = ()
    notes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    error: str = ""
    state: str = ""
    where: str = ""
    model: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[CallResult, ...] = ()

    @property
    def votes(self) -> tuple[VoteResult, ...]:
        return tuple(VoteResult(vote["agree"], vote["tried"]) for vote in self.record.get("votes", ()))


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task. ``wrong`` is the reason why the answer is wrong, empty if it is right. ``broken`` means
    that there is no answer to judge, because the server or the kernel ended, or the time limit was exceeded. A resumed
    run tries a broken task again. ``seconds`` is the time from the first prompt to the last answer, without setup and
    checks. ``marks`` are the checks of the task; ``holds`` and ``draws`` are the results of its expressions."""

    name: str
    kind: str
    held_out: bool
    wrong: str
    seconds: float
    repetition: int = 1
    broken: bool = False
    turns: tuple[TaskTurn, ...] = ()
    marks: Mapping[str, Any] = field(default_factory=dict)
    holds: bool | None = None
    draws: bool | None = None

    @property
    def key(self) -> tuple[str, int]:
        """The name of the task and the repetition, which identify the result within a run."""
        return self.name, self.repetition

    @property
    def label(self) -> str:
        return self.name if self.repetition == 1 else f"{self.name} ({self.repetition})"

    @property
    def is_right(self) -> bool:
        return not self.wrong

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of all turns, in order."""
        return tuple(program for turn in self.turns for program in turn.programs)

    @property
    def votes(self) -> tuple[VoteResult, ...]:
        return tuple(vote for turn in self.turns for vote in turn.votes)

    @property
    def failed_programs(self) -> int:
        return sum(program.status != SUCCESS for program in self.programs)

    @property
    def prompt_tokens(self) -> int:
        return self._sum("prompt_tokens")

    @property
    def completion_tokens(self) -> int:
        return self._sum("completion_tokens")

    def _sum(self, name: str) -> int:
        return int(sum(turn.usage.get(name, 0) for turn in self.turns))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "seconds": round(self.seconds, 2),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "programs": len(self.programs),
            "failed_programs": self.failed_programs,
            "votes": [asdict(vote) for vote in self.votes],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TaskResult:
        """Return the result that ``to_json`` has encoded as ``body``. Raises TypeError, KeyError or ValueError for any
        other body."""
        given = {name: value for name, value in body.items() if name in cls.__slots__}
        return cls(**{**given, "turns": tuple(_read_turn(turn) for turn in body["turns"])})


def _read_turn(body: Mapping[str, Any]) -> TaskTurn:
    lists = {name: tuple(body[name]) for name in ("notes", "questions")}
    programs = tuple(Program(**program) for program in body["programs"])
    calls = tuple(CallResult(**call) for call in body.get("calls", ()))
    return TaskTurn(**{**body, **lists, "programs": programs, "calls": calls})
