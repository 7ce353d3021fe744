"""``agent-kernel doctor``: checks the models and the sandbox of this machine, or the features of one model."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from agent_kernel.cli.base.command import JSON, Command, argument, import_runtime
from agent_kernel.cli.config import admin_lines, policy_of
from agent_kernel.cli.models import model_state
from agent_kernel.core.protocols import EngineInfo
from agent_kernel.core.settings import Settings
from agent_kernel.engines.capability_probe import Finding, Probe, missing
from agent_kernel.engines.local.catalog.catalog import catalog
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.sessions.store.store_url import LOGS, WITH_BUS

_SHARED_WITH_BUS = ("running turns", "idempotency keys", "lasting tokens", "limits and budgets", "responses", "skills")
"""The data that servers share in addition to sessions if they can send messages to each other through their
database."""


def doctor(args: argparse.Namespace) -> int:
    """Print the results of the checks. Return 1 if a required layer of the sandbox is missing, otherwise 0. Without
    such a layer, the agent's code runs only in a kernel, and only after the user has allowed it. With --model, return
    the result of the check of that model."""
    settings = Settings.from_env()
    if args.model:
        return _model_doctor(settings, args.model, json_wanted=args.json)
    layers = asyncio.run(_layers(settings))
    models = [model_state(entry, settings.cache_dir) for entry in catalog().values()]
    missing = [name for name, layer in layers.items() if layer["required"] and not layer["active"]]
    rules = policy_of(settings)
    if args.json:
        places = {"data_dir": str(settings.data_dir), "cache_dir": str(settings.cache_dir)}
        policy = {"administrator": [{"path": str(file.path), "binding": file.binding} for file in rules.admin.files]}
        report = {
            "store": describe_store(settings),
            "sandbox": layers,
            "missing": missing,
            "models": models,
            "python": sys.executable,
        }
        print(json.dumps(report | places | policy))
        return 1 if missing else 0
    print(f"python     {sys.executable} ({platform.python_version()}, {platform.system()})")
    for line in _store_lines(settings):
        print(f"sessions   {line}")
    for model in models:
        print(f"model      {model['name']}: {model['state']}, {model['path'] or model['problem'] or model['title']}")
    for name, layer in layers.items():
        state = "in force" if layer["active"] else "MISSING" if layer["required"] else "not here"
        print(f"sandbox    {name:<14}{state:<10}{layer['detail']}")
    print(f"sandbox    {'unusable: ' + ', '.join(missing) if missing else 'ready'}")
    for line in admin_lines(rules):
        print(f"policy     {line}")
    return 1 if missing else 0


def describe_store(settings: Settings) -> dict[str, Any]:
    """Return the kind of the session store, the data that the servers of this store share, and the data that each
    server has for itself. The function does not open the store, and its result does not contain the URL of a
    database."""
    scheme = settings.store.partition(":")[0]
    if scheme not in LOGS:
        return {"kind": settings.store_name, "shared": [], "separate": []}
    more = [*_SHARED_WITH_BUS]
    with_bus = scheme in WITH_BUS
    return {
        "kind": scheme,
        "shared": ["sessions", *(more if with_bus else [])],
        "separate": [] if with_bus else more,
    }


def _store_lines(settings: Settings) -> list[str]:
    store = describe_store(settings)
    if not store["shared"]:
        return [str(settings.data_dir)]
    lines = [f"{store['kind']}: a database; its servers share {', '.join(store['shared'])}"]
    if store["separate"]:
        lines.append(f"{store['kind']}: each server has its own {', '.join(store['separate'])}")
    return lines


def _model_doctor(settings: Settings, model: str, *, json_wanted: bool) -> int:
    """Print the results of the checks of a model. Return 1 if an agent cannot use the model, because it does not
    answer, does not stream, or makes no tool calls; otherwise 0."""
    info, findings = asyncio.run(_findings(settings, model))
    lacking = missing(findings)
    if json_wanted:
        where = {"model": info.model, "local": info.local, "host": info.host, "context_length": info.context_length}
        rows = [{"feature": finding.feature, "state": finding.state, "detail": finding.detail} for finding in findings]
        print(json.dumps({**where, "findings": rows, "missing": lacking}, indent=2))
        return 1 if lacking else 0
    length = f"{info.context_length:,} tokens" if info.context_length else "context length unknown"
    where_to = ("local" if info.local else "remote") + (f": {info.host}" if info.host else "")
    print(f"model      {info.model} ({where_to}), {length}")
    for finding in findings:
        print(f"{'':<11}{finding.feature:<17}{finding.state:<8}{finding.detail}")
    print(f"           {'unusable: ' + ', '.join(lacking) if lacking else 'usable'}")
    return 1 if lacking else 0


async def _findings(settings: Settings, model: str) -> tuple[EngineInfo, list[Finding]]:
    async with aclosing(import_runtime().Runtime.build(settings)) as runtime:
        engine = runtime.engines.get(model)
        if not isinstance(engine, OpenAIEngine):
            return engine.info(), await Probe(engine).findings()
        async with aclosing(engine.with_vision()) as vision_engine:
            return engine.info(), await Probe(engine, vision_engine).findings()


async def _layers(settings: Settings) -> Mapping[str, Mapping[str, Any]]:
    async with aclosing(import_runtime().Runtime.build(settings)) as runtime:
        layers: Mapping[str, Mapping[str, Any]] = await runtime.sandbox.report()
        return layers


DOCTOR = Command(
    "doctor",
    "check the models and the sandbox on this machine, or the features of one model",
    doctor,
    (argument("--model", help="check an engine, a model or a URL[#MODEL] instead of this machine"), JSON),
)
