"""Models and the engine: what there is, pull one, unload it; and the health of this server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from agent_kernel import __version__
from agent_kernel.engines.local.catalog import catalog, entry, resolve
from agent_kernel.engines.local.engine import LocalEngine
from agent_kernel.engines.local.entry import Entry
from agent_kernel.errors import Conflict, ModelBroken, ModelMissing, StoreError
from agent_kernel.protocols import EngineInfo
from jupyter_ext.handlers.base import AgentHandler, guarded
from jupyter_ext.handlers.bodies import EmptyBody, PullBody
from jupyter_ext.sse import encode


def engine_to_json(info: EngineInfo) -> dict[str, Any]:
    return {
        "model": info.model,
        "local": info.local,
        "context_length": info.context_length,
        "vision": info.vision,
        "state": info.state,
        "details": dict(info.details),
    }


def model_to_json(found: Entry, cache_dir: Path) -> dict[str, Any]:
    """Blocking: looks at the disk."""
    state, path = "ready", None
    try:
        path = str(resolve(found.name, cache_dir).path)
    except ModelMissing:
        state = "missing"
    except ModelBroken as error:
        state = f"broken: {error.message}"
    return {**found.offer(), "description": found.description, "state": state, "path": path}


class ModelsHandler(AgentHandler):
    @guarded("read")
    async def get(self) -> None:
        cache_dir = self.app.runtime.settings.cache_dir
        found = await asyncio.to_thread(lambda: [model_to_json(entry, cache_dir) for entry in catalog().values()])
        self.reply({"models": found, "engine": engine_to_json(self.app.runtime.engine.info())})


class ModelPullHandler(AgentHandler):
    @guarded("execute")
    async def post(self, name: str) -> None:
        """Names of the catalog only: a kernel can not make the server fetch anything else."""
        self.parse(PullBody)
        pull = self.app.pulls.start(entry(name).name)
        await self.stream(_lines(pull.follow()))


async def _lines(progress: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    async for line in progress:
        yield encode(line)


class EngineUnloadHandler(AgentHandler):
    @guarded("execute")
    async def post(self) -> None:
        """Gives back the model's memory; the next turn loads it again. Another engine's model is not ours to unload."""
        self.parse(EmptyBody)
        engine = self.app.runtime.engine
        if self.app.turns.running:
            raise Conflict("A turn is running.", hint="Stop it, or wait for its end.")
        if isinstance(engine, LocalEngine):
            await engine.aclose()
        self.reply({"engine": engine_to_json(engine.info())})


class HealthHandler(AgentHandler):
    @guarded("read")
    async def get(self) -> None:
        runtime = self.app.runtime
        store = "ok"
        try:
            await runtime.store.list(self.caller.namespace, 1)
        except StoreError as error:
            store = error.message
        sandbox = {name: dict(layer) for name, layer in (await runtime.sandbox.report()).items()}
        self.reply(
            {
                "status": "ok" if store == "ok" else "degraded",
                "version": __version__,
                "engine": engine_to_json(runtime.engine.info()),
                "sandbox": sandbox,
                "store": {"kind": runtime.settings.store, "state": store},
            }
        )
