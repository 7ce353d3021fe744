"""``agent-kernel config``: shows the settings, where each value comes from, and the resulting permissions."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import JSON, Command, group
from agent_kernel.core.setting_declaration import variable
from agent_kernel.core.settings import SETTINGS, Settings
from agent_kernel.permissions import AdminPolicy, Policy
from agent_kernel.permissions.admin_policy import policy_paths
from agent_kernel.permissions.policy import to_json

NOTE = "The Jupyter server's traits (c.AgentKernel.NAME) override variables. This command cannot read them."


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
