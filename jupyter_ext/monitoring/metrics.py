"""What a server did, for Prometheus: counted as turns announce it, and looked at when it is asked for.

One registry for each server. Labels are words of this program, and the names of engines that the configuration has:
never a word of a person, an id, a user, or the name of a tool that somebody else gave.
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
"""Of tools; another one counts as OTHER, a call of a tool that there is none of as UNKNOWN."""
OTHER, UNKNOWN, CALLER = "other", "unknown", "caller"
OUTCOMES = frozenset({"success", "error", "denied", "timeout", "interrupted"})
DECISIONS = frozenset({"approve", "deny"})
VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LEFT = "left"
SHORT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LONG = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
ROUNDS = (0, 1, 2, 3, 5, 8, 13, 21, 34)
_SAID = (TextDelta, ReasoningDelta, CallStarted, CallReturned)


@dataclass(slots=True)
class Watched:
    """A turn so far. ``waits`` is since when it stands in a line."""

    began: float
    waits: float | None = None
    waited: float = 0.0
    said: bool = False
    speaks: tuple[float, float] | None = None
    """When the model began with what it says now, and when it was heard last."""
    spoke: float = 0.0
    kinds: dict[str, str] = field(default_factory=dict)
    """Of the tools that it was offered, by name."""
    calls: dict[str, str] = field(default_factory=dict)
    """Their kinds, of the calls that run."""

    def paused(self) -> None:
        """The model says no more in this round."""
        if self.speaks:
            self.spoke += self.speaks[1] - self.speaks[0]
            self.speaks = None


class Metrics:
    """Belongs to one event loop. ``began``, ``ended`` and ``said`` hear of turns, ``answered`` of requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry = CollectorRegistry()
        self._clock = clock
        self._turns: dict[str, Watched] = {}
        self._gauges: Gauges | None = None
        ProcessCollector(registry=registry)
        Info("agent_kernel_build", "The version of this server.", registry=registry).info({"version": __version__})
        self._ended = _counter(registry, "turns", "Turns that ended.", "state", "route")
        self._seconds = _histogram(registry, "turn_seconds", "From the request of a turn to its end.", LONG)
        self._rounds = _histogram(registry, "turn_rounds", "Rounds of calls of tools in a turn.", ROUNDS)
        self._waited = _histogram(registry, "turn_wait_seconds", "What a turn waited in lines.", SHORT)
        self._first = _histogram(
            registry, "time_to_first_token_seconds", "From the request of a turn to the first of its answer.", SHORT
        )
        self._between = _histogram(
            registry, "inter_token_seconds", "Between two tokens, on average over a turn.", PER_TOKEN
        )
        self._tokens = _counter(registry, "tokens", "Of models, by kind: prompt, completion, reused.", "kind")
        self._calls = _counter(registry, "tool_calls", "Calls of tools by kind.", "kind", "outcome")
        self._call_seconds = _histogram(registry, "tool_seconds", "What calls of tools took.", SHORT, "kind")
        self._asked = _counter(registry, "approvals", "Questions to a person, by their answer.", "decision")
        self._requests = _counter(registry, "http_requests", "Requests, by route.", "method", "route", "status")
        self._request_seconds = _histogram(
            registry, "http_request_seconds", "What requests took, streams to their end.", SHORT, "route"
        )

    def add_gauges(self, gauges: Gauges) -> None:
        """Show ``gauges`` beside what is counted. They read parts of the server that are made after this object."""
        self._gauges = gauges
        self.registry.register(gauges)

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, in the format that is accepted."""
        if self._gauges is not None:
            await self._gauges.look()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def watching(self, sources: Sequence[ToolSource]) -> tuple[ToolSource, ...]:
        """The same sources, of whose tools the kinds are known by the turn that they were offered to."""
        return tuple(Noted(source, self._offered) for source in sources)

    # ------------------------------------------------------------------------------------------------ turns

    def began(self, turn: LiveTurn) -> None:
        """Not always the first that is heard of it: it may have been told its place in a line."""
        self._turns.setdefault(turn.id, Watched(self._clock()))

    def said(self, turn: LiveTurn, body: EventBody) -> None:
        watched = self._turns.get(turn.id)
        if watched is None:
            if not turn.running:
                return
            watched = self._turns[turn.id] = Watched(self._clock())
        if isinstance(body, TurnFinished) and turn.log.finished is not body:
            return  # a task that was cancelled may tell it again
        if isinstance(body, TextDelta | ReasoningDelta):
            now = self._clock()
            watched.speaks = (watched.speaks[0], now) if watched.speaks else (now, now)
        if not isinstance(body, TextDelta) or not watched.said or watched.waits is not None:
            self._follow(watched, body)

    def ended(self, turn: LiveTurn) -> None:
        watched = self._turns.pop(turn.id, None)
        if watched is None:
            return
        state = "refused" if turn.refusal is not None else turn.state
        self._ended.labels(state, turn.order.route).inc()
        if turn.refusal is None:
            self._seconds.observe(self._clock() - watched.began)
            self._waited.observe(watched.waited)

    def _follow(self, watched: Watched, body: EventBody) -> None:
        now = self._clock()
        if watched.waits is not None and not isinstance(body, Queued | Notice):
            watched.waited += now - watched.waits
            watched.waits = None
        if not watched.said and isinstance(body, _SAID):
            watched.said = True
            self._first.observe(now - watched.began)
        match body:
            case Queued() if watched.waits is None:
                watched.waits = now
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
                watched.paused()
            case TurnFinished():
                watched.paused()
                self._cost(body.rounds, body.usage, watched.spoke)

    def _cost(self, rounds: int, usage: Mapping[str, float], spoke: float) -> None:
        """The tokens of each model call, of which there is one more than rounds, come one after the other."""
        self._rounds.observe(rounds)
        for kind in ("prompt", "completion", "reused"):
            self._tokens.labels(kind).inc(max(0.0, usage.get(f"{kind}_tokens", 0)))
        gaps = usage.get("completion_tokens", 0) - rounds - 1
        if gaps > 0 and (decoded := usage.get("decode_s") or spoke):
            self._between.observe(decoded / gaps)

    def _offered(self, turn: str, tools: Iterable[Tool]) -> None:
        watched = self._turns.get(turn)
        if watched is not None:
            for tool in tools:
                watched.kinds.setdefault(tool.spec.name, tool.spec.kind if tool.spec.kind in KINDS else OTHER)

    # ------------------------------------------------------------------------------------------------ requests

    def answered(self, handler: RequestHandler, seconds: float, left: bool) -> None:
        verb = str(handler.request.method or "")
        status = LEFT if left else str(handler.get_status())
        self._requests.labels(verb if verb in VERBS else OTHER, handler.route, status).inc()
        self._request_seconds.labels(handler.route).observe(seconds)


@dataclass(frozen=True, slots=True)
class Noted:
    """A source of tools, whose offers are told."""

    source: ToolSource
    told: Callable[[str, Iterable[Tool]], None]

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        offered = await self.source.offer(occasion)
        self.told(occasion.turn, offered.tools)
        return offered

    async def aclose(self) -> None:
        await self.source.aclose()


def _counter(registry: CollectorRegistry, name: str, told: str, *labels: str) -> Counter:
    return Counter(f"agent_kernel_{name}", told, labels, registry=registry)


def _histogram(registry: CollectorRegistry, name: str, told: str, buckets: Sequence[float], *labels: str) -> Histogram:
    return Histogram(f"agent_kernel_{name}", told, labels, registry=registry, buckets=buckets)
