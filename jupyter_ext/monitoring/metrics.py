"""Prometheus metrics of a server. They are counted from the events of running turns, and exported on request.

There is one registry for each server. Labels are fixed words and the names of configured engines. They never contain
text of a person, an id, the name of a user, or the name of a tool that somebody else supplied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from agent_kernel.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallReturned,
    CallStarted,
    ContextBuilt,
    EventBody,
    Notice,
    Queued,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from agent_kernel.core.version import __version__
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSource, ToolSourceContext
from jupyter_ext.monitoring.gauges import Gauges
from jupyter_ext.monitoring.request_tracker import RequestHandler
from jupyter_ext.turns.turns import LiveTurn

if TYPE_CHECKING:
    from agent_kernel.core.protocols import Tool

KINDS = frozenset(
    {
        *("python.live", "python.draft", "python.sandbox", "shell", "files.read", "web", "mcp", "dispatch"),
        *("function", "function.effects", "notebook.read", "notebook.edit", "notebook.run", "sessions.read"),
    }
)
"""Kinds of tools that are used as labels. Other kinds are counted as OTHER, and calls of tools that do not exist as
UNKNOWN."""
OTHER, UNKNOWN, CALLER = "other", "unknown", "caller"
OUTCOMES = frozenset({"success", "error", "denied", "timeout", "interrupted"})
DECISIONS = frozenset({"approve", "deny"})
VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LEFT = "left"
SHORT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LONG = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
ROUNDS = (0, 1, 2, 3, 5, 8, 13, 21, 34)
_ANSWER_EVENTS = (TextDelta, ReasoningDelta, CallStarted, CallReturned)


@dataclass(slots=True)
class TurnStats:
    """The measurements of a running turn. ``waiting_since`` is the time at which the turn began to wait in a queue;
    None if it does not wait."""

    began: float
    waiting_since: float | None = None
    waited: float = 0.0
    has_answered: bool = False
    decoding: tuple[float, float] | None = None
    """The times at which the model produced the first and the latest text of this round."""
    decode_s: float = 0.0
    kinds: dict[str, str] = field(default_factory=dict)
    """The kinds of the tools that the turn was offered, by name."""
    calls: dict[str, str] = field(default_factory=dict)
    """The kinds of the calls that run, by call id."""

    def end_round(self) -> None:
        """Add the decoding time of the round that has ended to ``decode_s``."""
        if self.decoding:
            self.decode_s += self.decoding[1] - self.decoding[0]
            self.decoding = None


class Metrics:
    """The metrics of one server.

    Belongs to one event loop. ``on_turn_begin``, ``on_turn_end`` and ``on_turn_body`` are called with turns,
    ``on_request_end`` with requests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry = CollectorRegistry()
        self._clock = clock
        self._turns: dict[str, TurnStats] = {}
        self._gauges: Gauges | None = None
        ProcessCollector(registry=registry)
        Info("agent_kernel_build", "The version of this server.", registry=registry).info({"version": __version__})
        self._ended = _counter(registry, "turns", "Turns that ended.", "state", "route")
        self._seconds = _histogram(registry, "turn_seconds", "Seconds from the request of a turn to its end.", LONG)
        self._rounds = _histogram(registry, "turn_rounds", "Rounds of tool calls in a turn.", ROUNDS)
        self._waited = _histogram(registry, "turn_wait_seconds", "Seconds that a turn waited in queues.", SHORT)
        self._first = _histogram(
            registry, "time_to_first_token_seconds", "Seconds from the request of a turn to its first token.", SHORT
        )
        self._between = _histogram(
            registry, "inter_token_seconds", "Average seconds between two tokens of a turn.", PER_TOKEN
        )
        self._tokens = _counter(registry, "tokens", "Tokens of models: prompt, completion, reused.", "kind")
        self._calls = _counter(registry, "tool_calls", "Tool calls, by kind of tool.", "kind", "outcome")
        self._call_seconds = _histogram(registry, "tool_seconds", "Seconds that tool calls took.", SHORT, "kind")
        self._asked = _counter(registry, "approvals", "Approval questions, by answer.", "decision")
        self._requests = _counter(registry, "http_requests", "HTTP requests, by route.", "method", "route", "status")
        self._request_seconds = _histogram(
            registry, "http_request_seconds", "Seconds from a request to the end of its response.", SHORT, "route"
        )

    def add_gauges(self, gauges: Gauges) -> None:
        """Export ``gauges`` together with the counted metrics. This is a separate step because gauges read parts of the
        server that are created after this object."""
        self._gauges = gauges
        self.registry.register(gauges)

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its content type, in the format that ``accept`` asks for."""
        if self._gauges is not None:
            await self._gauges.refresh()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def observe_sources(self, sources: Sequence[ToolSource]) -> tuple[ToolSource, ...]:
        """Wrap the sources so that the kind of each offered tool is recorded for its turn."""
        return tuple(ObservedSource(source, self._record_tool_kinds) for source in sources)

    # ------------------------------------------------------------------------------------------------ turns

    def on_turn_begin(self, turn: LiveTurn) -> None:
        """Start to measure a turn, unless an event of it, such as its position in a queue, has already done so."""
        self._turns.setdefault(turn.id, TurnStats(self._clock()))

    def on_turn_body(self, turn: LiveTurn, body: EventBody) -> None:
        watched = self._turns.get(turn.id)
        if watched is None:
            if not turn.running:
                return
            watched = self._turns[turn.id] = TurnStats(self._clock())
        if isinstance(body, TurnFinished) and turn.log.finished is not body:
            return  # a cancelled task may report its end twice
        if isinstance(body, TextDelta | ReasoningDelta):
            now = self._clock()
            watched.decoding = (watched.decoding[0], now) if watched.decoding else (now, now)
        if not isinstance(body, TextDelta) or not watched.has_answered or watched.waiting_since is not None:
            self._follow(watched, body)

    def on_turn_end(self, turn: LiveTurn) -> None:
        watched = self._turns.pop(turn.id, None)
        if watched is None:
            return
        state = "refused" if turn.refusal is not None else turn.state
        self._ended.labels(state, turn.spec.route).inc()
        if turn.refusal is None:
            self._seconds.observe(self._clock() - watched.began)
            self._waited.observe(watched.waited)

    def _follow(self, watched: TurnStats, body: EventBody) -> None:
        now = self._clock()
        if watched.waiting_since is not None and not isinstance(body, Queued | Notice):
            watched.waited += now - watched.waiting_since
            watched.waiting_since = None
        if not watched.has_answered and isinstance(body, _ANSWER_EVENTS):
            watched.has_answered = True
            self._first.observe(now - watched.began)
        match body:
            case Queued() if watched.waiting_since is None:
                watched.waiting_since = now
            case CallStarted():
                watched.calls[body.call] = watched.kinds.get(body.name, UNKNOWN)
            case CallReturned():
                self._calls.labels(CALLER, "returned").inc()
            case CallFinished():
                kind = watched.calls.pop(body.call, UNKNOWN)
                self._calls.labels(kind, body.status if body.status in OUTCOMES else OTHER).inc()
                self._call_seconds.labels(kind).observe(body.seconds)
            case ApprovalRequired():
                self._asked.labels("asked").inc()
            case ApprovalResolved():
                self._asked.labels(body.decision if body.decision in DECISIONS else OTHER).inc()
            case ContextBuilt():
                watched.end_round()
            case TurnFinished():
                watched.end_round()
                self._observe_usage(body.rounds, body.usage, watched.decode_s)

    def _observe_usage(self, rounds: int, usage: Mapping[str, float], decode_s: float) -> None:
        """Record the tokens of a turn, and the time between two tokens. A turn with ``rounds`` rounds of tool calls has
        ``rounds + 1`` model calls. ``decode_s`` is the measured decoding time, which is used if the engine reports
        none."""
        self._rounds.observe(rounds)
        for kind in ("prompt", "completion", "reused"):
            self._tokens.labels(kind).inc(max(0.0, usage.get(f"{kind}_tokens", 0)))
        gaps = usage.get("completion_tokens", 0) - rounds - 1
        if gaps > 0 and (decoded := usage.get("decode_s") or decode_s):
            self._between.observe(decoded / gaps)

    def _record_tool_kinds(self, turn: str, tools: Iterable[Tool]) -> None:
        watched = self._turns.get(turn)
        if watched is not None:
            for tool in tools:
                watched.kinds.setdefault(tool.spec.name, tool.spec.kind if tool.spec.kind in KINDS else OTHER)

    # ------------------------------------------------------------------------------------------------ requests

    def on_request_end(self, handler: RequestHandler, seconds: float, left: bool) -> None:
        verb = str(handler.request.method or "")
        status = LEFT if left else str(handler.get_status())
        self._requests.labels(verb if verb in VERBS else OTHER, handler.route, status).inc()
        self._request_seconds.labels(handler.route).observe(seconds)


@dataclass(frozen=True, slots=True)
class ObservedSource:
    """A tool source that offers the tools of ``source``. Each time, it calls ``on_offer`` with the id of the turn and
    the tools."""

    source: ToolSource
    on_offer: Callable[[str, Iterable[Tool]], None]

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        offered = await self.source.offer(occasion)
        self.on_offer(occasion.turn, offered.tools)
        return offered


def _counter(registry: CollectorRegistry, name: str, description: str, *labels: str) -> Counter:
    return Counter(f"agent_kernel_{name}", description, labels, registry=registry)


def _histogram(
    registry: CollectorRegistry, name: str, description: str, buckets: Sequence[float], *labels: str
) -> Histogram:
    return Histogram(f"agent_kernel_{name}", description, labels, registry=registry, buckets=buckets)
