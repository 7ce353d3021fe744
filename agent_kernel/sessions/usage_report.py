"""Reports the usage of stored turns: tokens and seconds by model, branch and day, and the number of tool calls with
their outcomes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent_kernel.core.events import CallFinished, EventBody
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import MAIN, Session, SessionKey, Summary, Turn

CALLS = "calls"
"""Key in the record of a turn for its tool calls: {tool: {count, seconds, outcomes}}."""


class CallTally:
    """Counts the tool calls of one turn from its events."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolUsage] = {}

    def note(self, body: EventBody) -> None:
        if isinstance(body, CallFinished):
            self._tools.setdefault(body.name, ToolUsage()).add(1, body.seconds, {body.status: 1})

    @property
    def record(self) -> dict[str, Any]:
        """Return {CALLS: tool calls} for the record of the turn; empty if there were no calls."""
        return {CALLS: {name: use.to_json() for name, use in self._tools.items()}} if self._tools else {}


@dataclass(slots=True)
class ToolUsage:
    """The calls of one tool. ``seconds`` includes the time spent waiting for a person's approval; ``outcomes`` counts
    the results by status."""

    count: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, count: int, seconds: float, outcomes: Mapping[str, int]) -> None:
        self.count += count
        self.seconds += seconds
        for status, number in outcomes.items():
            self.outcomes[status] = self.outcomes.get(status, 0) + number

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "seconds": round(self.seconds, 4), "outcomes": dict(sorted(self.outcomes.items()))}


@dataclass(slots=True)
class UsageCost:
    """Token counts and seconds, added up over several turns. ``turns`` counts turns in every state, ``summaries`` the
    model calls that wrote a summary."""

    turns: int = 0
    summaries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reused_tokens: int = 0
    seconds: float = 0.0
    estimated: bool = False
    """True if at least one of the token counts is an estimate."""

    def add_usage(self, usage: Mapping[str, float]) -> None:
        self.prompt_tokens += int(usage.get("prompt_tokens", 0))
        self.completion_tokens += int(usage.get("completion_tokens", 0))
        self.reused_tokens += int(usage.get("reused_tokens", 0))
        self.seconds += usage.get("seconds", 0.0)
        self.estimated = self.estimated or bool(usage.get("estimated"))

    def to_json(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)} | {"seconds": round(self.seconds, 4)}


@dataclass(slots=True)
class UsageReport:
    """The usage of one or several sessions: in total, by the name of the model (empty: unknown), by local date
    (YYYY-MM-DD), by the branch on which a turn ran, and by tool. Branches of the same name are combined."""

    total: UsageCost = field(default_factory=UsageCost)
    models: dict[str, UsageCost] = field(default_factory=lambda: defaultdict(UsageCost))
    days: dict[str, UsageCost] = field(default_factory=lambda: defaultdict(UsageCost))
    branches: dict[str, UsageCost] = field(default_factory=lambda: defaultdict(UsageCost))
    tools: dict[str, ToolUsage] = field(default_factory=lambda: defaultdict(ToolUsage))
    states: dict[str, int] = field(default_factory=dict)

    def add_turn(self, turn: Turn, branch: str = MAIN) -> None:
        for cost in (self.total, self.models[turn.model], self.days[_day(turn.opened)], self.branches[branch]):
            cost.turns += 1
            cost.add_usage(turn.usage)
        self.states[turn.state] = self.states.get(turn.state, 0) + 1
        for name, use in _calls(turn):
            self.tools[name].add(int(use.get("count", 0)), float(use.get("seconds", 0.0)), use.get("outcomes", {}))

    def add_summary(self, summary: Summary, branch: str = MAIN) -> None:
        for cost in (self.total, self.models[summary.model], self.days[_day(summary.time)], self.branches[branch]):
            cost.summaries += 1
            cost.add_usage(summary.usage)

    def to_json(self) -> dict[str, Any]:
        parts = ("models", "days", "branches", "tools")
        return {
            "total": self.total.to_json(),
            "states": dict(sorted(self.states.items())),
            **{part: {name: cost.to_json() for name, cost in sorted(getattr(self, part).items())} for part in parts},
        }


async def account(store: SessionStore, sessions: Iterable[Session | SessionKey]) -> UsageReport:
    """Return the usage of all turns and summaries in these sessions. Each counts once, however many branches show
    it."""
    whole = UsageReport()
    for session in sessions:
        key = session.key if isinstance(session, Session) else session
        await _add_session(whole, store, key)
    return whole


async def _add_session(whole: UsageReport, store: SessionStore, key: SessionKey) -> None:
    seen: set[str] = set()
    summed: set[int] = set()
    for branch in await store.branches(key):
        for turn in await store.turns(key, branch=branch.name):
            if turn.id not in seen:
                seen.add(turn.id)
                whole.add_turn(turn, branch.name)
        for summary in await store.summaries(key, branch=branch.name):
            if summary.id not in summed:
                summed.add(summary.id)
                whole.add_summary(summary, branch.name)


def _calls(turn: Turn) -> Iterable[tuple[str, Mapping[str, Any]]]:
    calls = turn.record.get(CALLS)
    return calls.items() if isinstance(calls, Mapping) else ()


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
