"""Lists the models that a request may name: the server's default engine, the configured engines, and models on disk.
This neither loads a model nor contacts another server."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import ModelBroken, UnknownModel
from agent_kernel.core.protocols import Engine, EngineInfo
from agent_kernel.engines.local.catalog.catalog import catalog, find_installed, from_hubs
from agent_kernel.engines.local.catalog.installed_model import LocalModel
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.model_slot import unwrap
from agent_kernel.tools.mcp.mcp_tools import McpTools
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.api.dialects.model_list import ModelFacts, ToolFacts, plain_and_agent_models
from jupyter_ext.turns.dialect_request import AGENT, DEFAULT

HERE = "agent-kernel"
"""The value of ``owned_by`` for a local model that names no owner."""
BEGAN = time.time()
FENCE = "fence"
"""The tool protocol of models that write code in place of calls."""


async def models(runtime: Runtime) -> list[dict[str, Any]]:
    """Return the models in OpenAI's format, the default first: first all of them as plain models, then all of them as
    agents."""
    on_disk = await asyncio.to_thread(_on_disk, runtime.settings.cache_dir)
    by_id: dict[str, ModelFacts] = {}
    for model in (*_engines(runtime), *on_disk):
        by_id.setdefault(model.id, model)
    return plain_and_agent_models([*by_id.values()], await _tools(runtime))


async def model(runtime: Runtime, id: str) -> dict[str, Any]:
    """Return the model with the name ``id`` in OpenAI's format. Raises UnknownModel if a request cannot name it."""
    entry = next((model for model in await models(runtime) if model["id"] == id), None)
    if entry is None:
        name = id.removeprefix(AGENT)
        raise UnknownModel(f"There is no model {name[:100]!r} here.", hint="GET models lists all models.")
    return entry


def _engines(runtime: Runtime) -> list[ModelFacts]:
    engines = runtime.engines
    own = engines.get()
    entries = [_engine_facts(DEFAULT, own), _engine_facts(own.info().model, own)]
    for row in engines.describe_configured():
        if row["refused"]:
            continue
        engine = engines.used.get(row["name"])
        if engine is not None:
            entries.append(_engine_facts(row["name"], engine))
            continue
        state = "unloaded" if row["local"] and not row["host"] else "ready"
        info = EngineInfo(row["model"] or row["name"], row["local"], 0, False, state, host=row["host"])
        entries.append(_facts(row["name"], info, {"vision": row.get("vision") or None}))
    return entries


def _engine_facts(name: str, engine: Engine) -> ModelFacts:
    info = engine.info()
    inner = unwrap(engine)
    capabilities: dict[str, bool | None] = {"vision": info.vision}
    if isinstance(inner, LocalEngine):
        capabilities = {
            **_local(inner.tool_protocol),
            "vision": info.vision or (False if info.state == "ready" else None),
        }
    elif info.local and not info.host:
        capabilities |= {"tools": True, "logprobs": True}
    refused = set(info.details.get("not_sent", ()))
    capabilities |= {name: False for name in ("tools", "logprobs") if name in refused}
    return _facts(name, info, capabilities)


def _facts(name: str, info: EngineInfo, known: dict[str, bool | None]) -> ModelFacts:
    reported = info.details.get("capabilities")
    more = {key: bool(value) for key, value in reported.items()} if isinstance(reported, dict) else {}
    capabilities = {"vision": None, "tools": None, "reasoning": None, "logprobs": None, **known, **more}
    owner = info.host or HERE
    length = info.context_length
    return ModelFacts(name, info.model, BEGAN, owner, info.state, info.local, info.host, length, capabilities)


def calls_only_python(engine: Engine) -> bool:
    """Return whether the model of the engine can call no tool but python, because its protocol turns code blocks into
    calls. False if the model is not on this machine yet and the settings do not state its protocol."""
    inner = unwrap(engine)
    return isinstance(inner, LocalEngine) and inner.tool_protocol == FENCE


def _local(protocol: str) -> dict[str, bool | None]:
    """Return the capabilities of a local model. A model with the code fence protocol can call python, but not the
    functions of a client."""
    return {"tools": protocol != FENCE if protocol else None, "logprobs": True}


def _on_disk(cache_dir: Path) -> list[ModelFacts]:
    """Return the models that are on the disk. Blocking: reads the disk."""
    models_here: list[ModelFacts] = []
    for name, entry in catalog().items():
        with suppress(ModelBroken):
            if (installed := find_installed(name, cache_dir)) is not None:
                models_here.append(_disk_facts(name, entry.title, entry.sources[0].publisher, installed))
    hubs = [
        _disk_facts(installed.name, installed.name, installed.name.partition("/")[0], installed)
        for installed in from_hubs(cache_dir)
    ]
    return [*models_here, *hubs]


def _disk_facts(name: str, title: str, owner: str, here: LocalModel) -> ModelFacts:
    capabilities = {"vision": None, "reasoning": None, **_local(here.protocol)}
    created = here.path.stat().st_mtime
    return ModelFacts(name, title, created, owner, "unloaded", True, "", here.context_length, capabilities)


async def mcp_servers(runtime: Runtime) -> list[dict[str, Any]]:
    """Return the state of each configured MCP server. No server is started for this."""
    sources = [getattr(source, "source", source) for source in runtime.sources]
    reports = [await source.report() for source in sources if isinstance(source, McpTools)]
    return [row for report in reports for row in report]


async def _tools(runtime: Runtime) -> ToolFacts:
    settings = runtime.settings
    up = [row for row in await mcp_servers(runtime) if row["state"] == "connected"]
    return ToolFacts(
        available=bool(settings.tools.strip(", ")) and settings.max_tool_rounds > 0,
        mcp_tools=sum(row["tools"] for row in up),
        mcp_servers=len(up),
    )


def engine_to_json(info: EngineInfo) -> dict[str, Any]:
    return {
        "model": info.model,
        "local": info.local,
        "host": info.host,
        "context_length": info.context_length,
        "vision": info.vision,
        "state": info.state,
        "details": dict(info.details),
    }
