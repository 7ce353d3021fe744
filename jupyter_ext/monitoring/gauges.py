"""Reports the present state of the server as metrics (gauges), which are read when they are requested."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.engines.local.catalog.catalog import DEFAULT, catalog
from agent_kernel.engines.local.system_memory import resident_bytes
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.model_slot import unwrap
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.monitoring.request_tracker import Requests
from jupyter_ext.notebooks.private_sessions import PrivateSessions
from jupyter_ext.push.model_downloads import ModelDownloads
from jupyter_ext.push.page_connection import PageConnections
from jupyter_ext.quotas.limits import Limits
from jupyter_ext.turns.turns import Turns

COUNT_EVERY_S = 30.0
"""Minimum interval between counts of the store's rows; counting a large store takes long."""
OWN = "own"
STATES = ("unloaded", "loading", "ready", "failed")
PREFIX = "agent_kernel_"


@dataclass(kw_only=True, eq=False)
class Gauges(Collector):
    """Reads the present state of one server as Prometheus metrics.

    Call ``refresh`` before ``collect``: it awaits the values that cannot be read synchronously.
    """

    runtime: Runtime
    turns: Turns
    user_limits: Limits
    private_sessions: PrivateSessions
    requests: Requests
    pages: PageConnections
    model_downloads: ModelDownloads
    _stored: Mapping[str, Any] = field(default_factory=dict)
    _counted: float = float("-inf")
    _layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = {"", *self.runtime.settings.engines, DEFAULT, *catalog()}
        """The names of configured engines. Other names can be URLs that a person entered, which must not become
        labels."""

    async def refresh(self) -> None:
        runtime, now = self.runtime, time.monotonic()
        self._layers = await runtime.sandbox.report()
        if now - self._counted < COUNT_EVERY_S:
            return
        store: Any = runtime.store
        try:
            self._stored = await store.stats() if hasattr(store, "stats") else {}  # not every store can report it
        except AgentKernelError:
            self._stored = {}
        self._counted = now

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return nothing: the parts of the server that ``collect`` reads may not exist yet when this is registered."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._turns()
        yield from self._store()
        yield from self._engines()
        if isinstance(sandbox := self.runtime.sandbox, LinuxSandbox):
            yield _gauge("sandbox_processes", "Sessions that have a Python process in the sandbox.", sandbox.processes)
        active = {name: float(bool(layer.get("active"))) for name, layer in self._layers.items()}
        yield _labelled_gauge("sandbox_layer", "1 if this layer of the sandbox is active.", "layer", active)

    def _turns(self) -> Iterator[GaugeMetricFamily]:
        running = self.turns.running
        waiting = sum(not turn.is_first.is_set() for turn in running)
        yield _gauge("turns_running", "Turns that are running.", len(running) - waiting)
        yield _gauge("turns_waiting", "Turns that wait for another turn of their session.", waiting)
        yield _gauge("engine_waiting", "Model calls that wait for an engine.", self.user_limits.waiting)
        yield _gauge("approvals_waiting", "Approval questions without an answer.", len(self.runtime.approvals.waiting))
        yield _gauge("http_requests_open", "HTTP requests in progress, including streams.", len(self.requests))
        yield _gauge("streams_open", "Responses that are being streamed.", self.requests.streams)
        yield _gauge("pages_open", "Pages with an open connection.", len(self.pages))
        yield _gauge("pulls_running", "Models that are being downloaded.", self.model_downloads.running)

    def _store(self) -> Iterator[GaugeMetricFamily]:
        private = "Sessions in memory only: private ones, and those of API requests that name none."
        yield _gauge("private_sessions", private, len(self.private_sessions))
        for name, description in (
            ("sessions", "Stored sessions."),
            ("namespaces", "Namespaces that have stored sessions."),
            ("bytes", "Size of the stored text in bytes."),
            ("media_bytes", "Size of the stored media in bytes."),
        ):
            if name in self._stored:
                yield _gauge(f"stored_{name}", description, self._stored[name])

    def _engines(self) -> Iterator[GaugeMetricFamily]:
        state = GaugeMetricFamily(
            f"{PREFIX}engine_state", "1 for the engine's present state.", labels=("engine", "state")
        )
        memory = GaugeMetricFamily(
            f"{PREFIX}engine_memory_bytes", "Resident memory of the engine's worker process.", labels=("engine",)
        )
        for name, engine in self.runtime.engines.used.items():
            if name not in self._names:
                continue
            now = engine.info().state
            for known in STATES:
                state.add_metric((name or OWN, known), float(known == now))
            local = unwrap(engine)
            if isinstance(local, LocalEngine) and local.worker_pid:
                memory.add_metric((name or OWN,), resident_bytes(local.worker_pid))
        yield state
        yield memory


def _gauge(name: str, description: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, description, value=value)


def _labelled_gauge(name: str, description: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, description, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
