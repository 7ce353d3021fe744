"""``agent-kernel doctor``: checks the models and the sandbox of this machine, or the features of one model;
and ``agent-kernel config``, which shows the settings."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import JSON, Command, argument, group, import_runtime
from agent_kernel.cli.base.jupyter_configuration import report_files_left_out
from agent_kernel.cli.models import model_state
from agent_kernel.core.protocols import EngineInfo
from agent_kernel.core.setting_declaration import variable
from agent_kernel.core.settings import SETTINGS, Settings
from agent_kernel.engines.capability_probe import Finding, Probe, missing
from agent_kernel.engines.local.catalog.catalog import catalog
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.permissions import AdminPolicy, Policy
from agent_kernel.permissions.admin_policy import policy_paths
from agent_kernel.permissions.gate import to_json
from agent_kernel.sessions.store.store_url import LOGS, WITH_BUS

_SHARED_WITH_BUS = ("running turns", "idempotency keys", "API tokens", "limits and budgets", "responses", "skills")
"""The data that servers share in addition to sessions if they can send messages to each other through their
database."""
NOTE = "The Jupyter server's traits (c.AgentKernel.NAME) override variables. This command cannot read them."


def doctor(args: argparse.Namespace) -> int:
    """Print the results of the checks. Return 1 if a required layer of the sandbox is missing, otherwise 0. Without
    such a layer, the agent's code runs only in a kernel, and only after the user has allowed it. With --model, return
    the result of the check of that model."""
    settings = Settings.from_env()
    report_files_left_out()
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


# ``agent-kernel config``: shows the settings, where each value comes from, and the resulting permissions.


def policy_of(settings: Settings) -> Policy:
    """Return the permission policy of a server with these settings. Raises InvalidRequest for an invalid policy
    file."""
    own: Mapping[str, Any] = settings.policy
    return Policy(settings.permission, own, AdminPolicy.read())


def admin_lines(policy: Policy) -> list[str]:
    """Return lines that describe the administrator's policy files. If there are none, they list the paths where
    agent-kernel looks for them."""
    if not policy.admin.files:
        return [f"administrator: nothing (there is no {', '.join(map(str, policy_paths()))})"]
    return [
        f"administrator: {file.path}, "
        + ("binding" if file.binding else "not binding, because you can change this file")
        for file in policy.admin.files
    ]


def show(args: argparse.Namespace) -> int:
    settings = Settings.from_env()
    report_files_left_out()
    policy = policy_of(settings)
    rows = [
        (name, _plain(name, settings.store_name if name == "store" else getattr(settings, name)), _source(name))
        for name in SETTINGS
    ]
    rules = {name: to_json(ruling) for name, ruling in policy.table()}
    if args.json:
        files = [{"path": str(file.path), "binding": file.binding} for file in policy.admin.files]
        values = {name: {"value": value, "from": source} for name, value, source in rows}
        print(json.dumps({"settings": values, "permissions": rules, "administrator": files}, indent=2))
        return 0
    for name, value, source in rows:
        print(f"{name:<22}{_format(value):<40} {source}")
    print(f"\n{NOTE}\n")
    for name, rule in rules.items():
        firm = ", each time" if rule["firm"] and rule["permission"] == "ask" else ""
        print(f"{name:<22}{rule['permission']:<6}{rule['because']}{firm}")
    print("\n" + "\n".join(admin_lines(policy)))
    return 0


def describe(args: argparse.Namespace) -> int:
    """Print all settings as a Markdown table, which is part of the documentation of the settings. Return 0."""
    defaults = dataclasses.asdict(Settings())
    print("| setting | default | what it does |\n|---|---|---|")
    for name, setting in SETTINGS.items():
        # The defaults of directories depend on the machine and the user, so the text of the setting describes them.
        default = "" if setting.kind is Path else f"`{json.dumps(defaults[name])}`"
        print(f"| `{name}` | {default} | {setting.help} |")
    return 0


def _source(name: str) -> str:
    return variable(name) if os.environ.get(variable(name)) else "default"


def _plain(name: str, value: object) -> object:
    """Return the value of a setting in a form for display. For ``engines`` and similar settings it contains only the
    keys, because a value may contain a secret."""
    if isinstance(value, Mapping):
        return dict(value) if name == "policy" else sorted(map(str, value))
    return value if isinstance(value, bool | int | float | str) else str(value)


def _format(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value) or "-"


CONFIG = group(
    "config",
    "show the settings and the resulting permissions",
    Command("show", "show every setting with its origin, and which calls may run", show, (JSON,)),
    Command("describe", "print what each setting does, as a Markdown table", describe),
)
