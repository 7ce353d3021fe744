"""Finds the engine for a name. A name can mean the server's own engine, an engine of the configuration, a model of the
catalog or of a hub, a path, or a URL. The registry never chooses an engine by itself."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import InvalidRequest, LocalOnly, UnknownModel
from agent_kernel.core.protocols import Engine, EngineInfo
from agent_kernel.core.settings import Settings
from agent_kernel.engines.added_servers import AddedServer, AddedServers
from agent_kernel.engines.fair_queue import FairQueue
from agent_kernel.engines.local.catalog.catalog import DEFAULT, catalog, is_named, is_path
from agent_kernel.engines.local.catalog.hub_id import HubId
from agent_kernel.engines.model_slot import SlottedEngine
from agent_kernel.engines.openai_api.endpoint import Endpoint, is_url

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
COMMANDS = frozenset({"pull", "unload", "reset"})
"""Subcommands of the notebook command ``model``. They are refused as names of engines."""
MODEL_LIST = "To see the models of this machine: agent-kernel model list"


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """An engine of the configuration that has no url: it runs a model of this machine."""

    model: str


def parse_engines(body: Mapping[str, Any]) -> dict[str, Endpoint | ConfiguredModel]:
    """Parse the setting ``engines``, which has the form ``{name: {url, model, ...}}`` (see ``Endpoint``). If an entry
    has no url, its ``model`` is a model of this machine. Raises InvalidRequest, which names the engine."""
    return {name: _parse_engine(name, settings) for name, settings in body.items()}


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name) or name in COMMANDS:
        raise InvalidRequest(
            f"{name!r} cannot name an engine: a name has letters, digits, dots and hyphens, 64 characters at most."
        )
    if is_named(name):
        raise InvalidRequest(
            f"An engine cannot be named {name}, because a model of the catalog has this name.",
            hint="Rename the engine.",
        )


def _parse_engine(name: str, settings: Any) -> Endpoint | ConfiguredModel:
    _check_name(name)
    if not isinstance(settings, Mapping):
        raise InvalidRequest(f"The engine {name} must be an object with a url.")
    try:
        if set(settings) == {"model"} and isinstance(settings["model"], str):
            return ConfiguredModel(settings["model"])
        return Endpoint.from_json(settings)
    except InvalidRequest as error:
        raise InvalidRequest(f"The engine {name}: {error.message}", hint=error.hint) from None


class NamedEngines:
    """Finds and creates engines by name. ``own`` is the server's own engine, which is used if a request names no other
    one. ``local`` is called with settings and creates an engine for a model of this machine. An engine is created at
    its first use and kept.

    With the setting ``local_only``, an engine that sends the conversation to another machine is refused for every
    caller.
    """

    def __init__(self, settings: Settings, own: Engine, local: Callable[[Settings], Engine]) -> None:
        self._settings = settings
        self._local = local
        self._configured = parse_engines(settings.engines)
        self._queue = FairQueue(settings.turns_at_once)
        self._created: dict[str, Engine] = {}
        self._added: dict[str, AddedServer] = {}
        configured = self._configured.get(settings.engine)
        uses_slot = settings.engine == "local" or isinstance(configured, ConfiguredModel)
        self._own: Engine = SlottedEngine(own, self._queue) if uses_slot else own
        model = configured.model if configured else "" if settings.engine == "scripted" else settings.model
        self._own_names = {"", settings.engine, model}
        self._egress = EgressPolicy(settings.local_only)
        self.stored = AddedServers(settings.data_dir)
        for server in self.stored.load():
            if server.name not in {*self._configured, *self._own_names}:  # servers of the configuration take precedence
                self._added[server.name] = server
        try:
            self._check(own.info())
        except LocalOnly as refused:
            raise InvalidRequest(
                f"This server cannot start with these settings: {refused.message}", hint=refused.hint
            ) from None

    def get(self, name: str = "") -> Engine:
        """Return the engine ``name``. An empty name, and the name of the server's own engine or model, mean the
        server's own engine. Any other name is the name of an engine of the configuration, a model of the catalog or of
        a hub, a path, or a URL (``URL#MODEL``). Raises UnknownModel, LocalOnly, InvalidRequest.

        This method accepts every URL: the API decides whether the caller may pass one.
        """
        if name in self._own_names or (name not in self._configured and name == self._own.info().model):
            return self._own
        if name not in self._created:
            engine = self._make(name)
            self._check(engine.info())
            self._created[name] = engine
        return self._created[name]

    def add(self, server: AddedServer) -> None:
        """Register a server that a user added, in place of one with the same name. Raises InvalidRequest for a name
        that the configuration or the catalog uses, or that is not allowed.
        """
        self.check_name(server.name)
        self._added[server.name] = server
        self._drop(server.name)

    def remove(self, name: str) -> None:
        """Unregister a server that a user added."""
        if self._added.pop(name, None) is not None:
            self._drop(name)

    def check_name(self, name: str) -> None:
        """Check that a user may give this name to a model server. Raises InvalidRequest if the name has other
        characters than allowed, or if the configuration or the catalog uses it."""
        _check_name(name)
        if name in self._configured or name in self._own_names:
            raise InvalidRequest(f"The configuration of this server has an engine {name} already.")

    def servers_of(self, namespace: str) -> list[AddedServer]:
        """Return the servers that this user added."""
        return [server for server in self._added.values() if server.namespace == namespace]

    def hides(self, name: str, namespace: str) -> bool:
        """Return whether another user added the server ``name``, so that the user of ``namespace`` must not see it."""
        server = self._added.get(name)
        return server is not None and server.namespace != namespace

    def check_egress(self, endpoint: Endpoint) -> None:
        """Raise LocalOnly if the settings forbid sending conversations to the engine's address."""
        if not endpoint.local:
            self._egress.check("", f"the conversation with {endpoint.host}")

    def _drop(self, name: str) -> None:
        """Forget the engine with this name. A turn that is using the engine can still finish; Python then frees the
        engine and closes its connections.
        """
        self._created.pop(name, None)

    def describe_added(self, namespace: str) -> list[dict[str, Any]]:
        """Describe the servers that this user added, in the form that ``describe_configured`` returns."""
        return [
            {
                "name": server.name,
                "model": server.endpoint.model,
                "local": server.endpoint.local,
                "host": server.endpoint.host,
                "refused": not server.endpoint.local and not self._egress.allows(""),
            }
            for server in self.servers_of(namespace)
        ]

    def describe_configured(self) -> list[dict[str, Any]]:
        """Return the engines of the configuration for display, without secrets."""
        rows = []
        for name, settings in self._configured.items():
            local = isinstance(settings, ConfiguredModel) or settings.local
            host = "" if isinstance(settings, ConfiguredModel) else settings.host
            refused = not local and not self._egress.allows("")
            rows.append({"name": name, "model": settings.model, "local": local, "host": host, "refused": refused})
        return rows

    @property
    def used(self) -> dict[str, Engine]:
        """The engines created so far by their names; the server's own engine has the empty name."""
        return {"": self._own, **self._created}

    @property
    def local_engines(self) -> list[Engine]:
        """The engines created so far that run a model of this machine."""
        used = {id(engine): engine for engine in (self._own, *self._created.values())}
        return [engine.engine for engine in used.values() if isinstance(engine, SlottedEngine)]

    async def aclose(self) -> None:
        for engine in (self._own, *self._created.values()):
            await engine.aclose()

    def _make(self, name: str) -> Engine:
        if is_url(name):
            return _remote(Endpoint.of_url(name))
        configured = self._configured.get(name)
        if isinstance(configured, Endpoint):
            return _remote(configured, name)
        if server := self._added.get(name):
            return _remote(server.endpoint, name)
        if isinstance(configured, ConfiguredModel) or is_named(name) or is_path(name) or HubId.parse(name):
            model = configured.model if configured else name
            if model in {*self._created, *self._own_names}:
                return self._created.get(model, self._own)
            return SlottedEngine(self._local(replace(self._settings, engine="local", model=model)), self._queue)
        near = difflib.get_close_matches(name, [*self._configured, DEFAULT, *catalog()], 1)
        suggestion = f"Did you mean {near[0]}?" if near else MODEL_LIST
        raise UnknownModel(f"There is no engine or model {name[:100]!r} here.", hint=suggestion)

    def _check(self, info: EngineInfo) -> None:
        """Raise LocalOnly if the engine sends conversations to another machine and the settings forbid this. The
        engine's own ``info`` decides, whatever its address is."""
        if not info.local:
            self._egress.check("", f"the conversation with {info.host or info.model}")


def engine_of(settings: Settings, local: Callable[[Settings], Engine]) -> Engine | None:
    """Return the engine of the configuration that ``settings.engine`` names, or None if the configuration has no engine
    of that name."""
    configured = parse_engines(settings.engines).get(settings.engine)
    if isinstance(configured, Endpoint):
        return _remote(configured, settings.engine)
    return local(replace(settings, engine="local", model=configured.model)) if configured else None


def _remote(endpoint: Endpoint, name: str = "") -> Engine:
    # The engine is imported here, because every server loads this module, but few servers use a model on another
    # server.
    from agent_kernel.engines.openai_api.engine import OpenAIEngine

    return OpenAIEngine(endpoint, name)
