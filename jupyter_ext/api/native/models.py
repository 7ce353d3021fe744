"""Routes that list, describe, download, unload and choose models and engines, and complete code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import (
    AgentKernelError,
    Conflict,
    InvalidRequest,
    ModelBroken,
    ModelMissing,
    UnknownModel,
    client_text,
)
from agent_kernel.core.session import SessionKey
from agent_kernel.engines.local.catalog.catalog import (
    DEFAULT,
    catalog,
    entry,
    entry_here,
    fetchable,
    find_installed,
    is_named,
    resolve,
)
from agent_kernel.engines.local.catalog.catalog_entry import CatalogEntry
from agent_kernel.engines.local.catalog.hub_id import HubId
from agent_kernel.engines.local.catalog.machine import read_machine
from agent_kernel.engines.local.catalog.measured_speed import read_speeds
from agent_kernel.engines.local.catalog.recommendation import assess, recommend
from agent_kernel.engines.local.infill import Filling, Gap, InfillEngine
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.model_slot import unwrap
from jupyter_ext.api.dialects.handler import SharedHandler
from jupyter_ext.api.dialects.model_list import anthropic_model, anthropic_page
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.http.sse import encode
from jupyter_ext.api.native import available_models
from jupyter_ext.api.native.available_models import engine_to_json
from jupyter_ext.api.native.request_schemas import EmptyBody, EngineBody, InfillBody, PullBody
from jupyter_ext.api.schemas import server as shapes
from jupyter_ext.api.schemas.operation import PLACE, SESSION, operation
from jupyter_ext.auth.callers import Caller
from jupyter_ext.services import Services
from jupyter_ext.turns.dialect_request import AGENT

INFILL_EVENT = "jupyter_ext.api.schemas.events:InfillEvent"
PULL_EVENT = "jupyter_ext.api.schemas.events:PullEvent"


async def current_engine(services: Services, caller: Caller, key: SessionKey | None) -> dict[str, Any]:
    """Describe the engine of the session, or of a session that does not exist yet; ``problem`` says why it cannot be
    used."""
    own = services.runtime.engine.info()
    try:
        name = await services.access.engine(caller, key) if key else ""
        return {**engine_to_json(services.runtime.engines.get(name).info()), "name": name, "problem": ""}
    except AgentKernelError as error:
        return {**engine_to_json(own), "name": "", "problem": client_text(error)}


def model_to_json(entry: CatalogEntry, cache_dir: Path) -> dict[str, Any]:
    """Describe a model of the catalog, without paths of this machine. Blocking: reads the disk."""
    state = "ready"
    try:
        resolve(entry.name, cache_dir)
    except ModelMissing:
        state = "missing"
    except ModelBroken as error:
        state = f"broken: {error.message.replace(f'{cache_dir}{os.sep}', '')}"
    return {**entry.offer(), "description": entry.description, "state": state}


class ModelsHandler(SharedHandler):
    @guard("read")
    @operation(shapes.AnyModels, query=(SESSION, *PLACE), errors=(404,))
    async def get(self) -> None:
        """List models and engines.

        ``data`` lists, in OpenAI's format, the models that requests may name; the other fields are for the panel
        and the notebook.
        """
        listed = await available_models.models(self.services.runtime)
        if self.anthropic:
            self.reply(anthropic_page(listed))
            return
        cache_dir, engines = self.services.runtime.settings.cache_dir, self.services.runtime.engines
        entries = await asyncio.to_thread(lambda: [model_to_json(entry, cache_dir) for entry in catalog().values()])
        self.reply(
            {
                "object": "list",
                "data": listed,
                "models": entries,
                "engines": [*engines.describe_configured(), *engines.describe_added(self.caller.namespace)],
                "engine": engine_to_json(self.services.runtime.engine.info()),
                "current": await current_engine(self.services, self.caller, await self._session_of_request()),
                "may_change": not self.caller.is_confined,
                "mcp_servers": await available_models.mcp_servers(self.services.runtime),
            }
        )

    async def _session_of_request(self) -> SessionKey | None:
        """Return the session that the query names, or else the session of the notebook that it names; None if there is
        neither."""
        access, caller = self.services.access, self.caller
        if id := self.get_argument("session", ""):
            return (await access.session(caller, id)).key
        place = await self.find_queried_place()
        return await self.services.notebooks.bound_session(caller.namespace, place) if place else None


def recommendation(cache_dir: Path) -> dict[str, Any]:
    """Say which model of the catalog suits this machine best, and what each one needs. Blocking: the first call may run
    ``nvidia-smi``."""
    machine = read_machine()
    assessed = assess(machine, read_speeds(cache_dir))
    models = [{"name": name, **found.to_json()} for name, found in assessed.items()]
    return {"machine": machine.to_json(), "recommended": recommend(machine, assessed) or None, "models": models}


class RecommendationHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Recommendation)
    async def get(self) -> None:
        """Say which models suit the machine of this server."""
        self.reply(await asyncio.to_thread(recommendation, self.services.runtime.settings.cache_dir))


class EngineHandler(AgentHandler):
    @guard("write")
    @operation(
        shapes.EngineChosen,
        body=EngineBody,
        query=PLACE,
        also={202: shapes.EnginePending},
        errors=(404, 409, 507),
        conditions="session, kernel or path must name the session, unless a kernel sends the request. model must be "
        "the name of an engine, or a URL.",
    )
    async def put(self) -> None:
        """Choose the engine of a session.

        The session is the named one, or that of the notebook. If a kernel chooses a URL, a person must confirm it in
        the browser.
        """
        body, caller, access = self.parse(EngineBody), self.caller, self.services.access
        place = await self.find_queried_place()
        if body.session is not None:
            key = (await access.session(caller, body.session)).key
        elif place is not None:
            key, _ = await self.services.notebooks.ensure_session(caller.namespace, place)
        else:
            raise InvalidRequest(
                "The request does not name a session. Send session in the body, or path or kernel in the query."
            )
        access.check_visible(caller, body.model)
        info = self.services.runtime.engines.get(body.model).info()
        if caller.kernel and not access.may_choose(caller, body.model):
            bind = self.services.bind_requests.add(caller.kernel.id, key, place or "", body.model)
            self.reply({**self.services.bind_requests.pending(bind), "engine": engine_to_json(info)}, 202)
            return
        await self.services.state.engine_choices.set(key, body.model)
        self.reply({"session": key.id, "engine": engine_to_json(info)})


class ModelHandler(SharedHandler):
    @guard("execute")
    @operation(shapes.AnyModel, errors=(404, 409, 502))
    async def get(self, name: str) -> None:
        """Describe a model and what it needs.

        The model need not be downloaded yet: if it is named by its id on a model hub and is not on disk, the hub is
        queried.
        """
        settings = self.services.runtime.settings
        try:
            listed = await available_models.model(self.services.runtime, name)
        except UnknownModel:
            if self.anthropic or name.startswith(AGENT):
                raise
            listed = {}
        if self.anthropic:
            self.reply(anthropic_model(listed))
            return
        if listed and name == DEFAULT and settings.engine != "local":
            # On this server the name stands for another engine, although the catalog has a local model of this name.
            facts = {}
        elif listed:
            model_name = settings.model if name == DEFAULT else name
            facts = await asyncio.to_thread(model_here, model_name, settings.cache_dir)
        else:
            facts = await asyncio.to_thread(_model, name, settings.cache_dir, settings.model_sources)
        self.reply({**listed, **facts})


def model_here(name: str, cache_dir: Path) -> dict[str, Any]:
    """Return the properties of a model of the catalog, or of a model of a hub that is on the disk, without a network
    request. Return an empty object for any other name."""
    hub_id = None if name.startswith(AGENT) else HubId.parse(name)
    if hub_id is None:
        return model_to_json(entry_here(name, cache_dir), cache_dir) if is_named(name) else {}
    installed = find_installed(name, cache_dir)
    if installed is None:
        return {}
    facts = {
        "title": hub_id.repo,
        "licence": installed.licence,
        "source": installed.source,
        "publisher": hub_id.publisher,
    }
    return {"name": name, "state": "ready"} | facts


def _model(name: str, cache_dir: Path, sources: tuple[str, ...]) -> dict[str, Any]:
    """Return the description of a model. Raises UnknownModel."""
    if HubId.parse(name) is None:
        return model_to_json(entry(name), cache_dir)
    local_facts = model_here(name, cache_dir)
    return local_facts or {**fetchable(name, sources=sources).offer(), "state": "missing"}


class ModelPullHandler(AgentHandler):
    @guard("execute")
    @operation(body=PullBody, errors=(404, 409, 502), streams=(PULL_EVENT,))
    async def post(self, name: str) -> None:
        """Download a model.

        ``name`` is a name of the catalog or the id of a model on a hub. Only data files are downloaded, only from the
        configured ``sources``, and only if the disk has room for them.
        """
        self.parse(PullBody)
        hub_id = HubId.parse(name)
        pull = self.services.model_downloads.start(str(hub_id) if hub_id else entry(name).name)
        await self.stream(_lines(pull.follow()))


async def _lines(progress: AsyncIterator[Mapping[str, Any]]) -> AsyncGenerator[bytes, None]:
    async for line in progress:
        yield encode(line)


class EngineUnloadHandler(AgentHandler):
    @guard("execute")
    @operation(shapes.Unloaded, body=EmptyBody, errors=(409,))
    async def post(self) -> None:
        """Free the memory of a model.

        The next turn loads the model again. The memory of models on other servers cannot be freed.
        """
        self.parse(EmptyBody)
        if self.services.turns.running:
            raise Conflict(
                "The model cannot be unloaded while a turn is running.",
                hint="Stop the turn, or wait until it has ended, and unload the model then.",
            )
        engines = self.services.runtime.engines.local_engines
        freed = 0
        for engine in engines:
            if isinstance(engine, LocalEngine):
                freed += await engine.unload()
            else:
                await engine.aclose()
        shown = engines[-1] if engines else self.services.runtime.engine
        self.reply({"engine": engine_to_json(shown.info()), "freed_bytes": freed})


class InfillHandler(AgentHandler):
    """Completes code for a person who types in a cell. Nothing is stored."""

    @guard("execute", kernels=False)
    @operation(body=InfillBody, errors=(429, 503), streams=(INFILL_EVENT,))
    async def post(self) -> None:
        """Complete code at the cursor.

        The default model of the server answers if it runs on this machine, is loaded, and no turn runs or waits. Each
        event has the text so far. The request does not wait: ``silence`` says why there is no text. The decoding ends
        when the client disconnects.
        """
        body = self.parse(InfillBody)
        self.services.turns.check_accepting()
        await self.services.turns.check_limits(self.caller.namespace)
        await self.stream(self._fillings(Gap(body.prefix, body.suffix, body.context)))

    async def _fillings(self, gap: Gap) -> AsyncGenerator[bytes, None]:
        engine = unwrap(self.services.runtime.engine)
        if not isinstance(engine, InfillEngine):
            yield encode(asdict(Filling(silence="unsupported")))
        elif self.services.turns.running:
            yield encode(asdict(Filling(silence="busy")))
        else:
            try:
                async with aclosing(engine.infill(gap)) as fillings:
                    async for filling in fillings:
                        yield encode(asdict(filling))
            except AgentKernelError as error:
                yield encode({**asdict(Filling()), "error": error.to_json()})
