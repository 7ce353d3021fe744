"""``agent-kernel trust``: manages trusted folders. Turns use the instructions, skills and MCP servers that such a
folder contains."""

from __future__ import annotations

import argparse
from pathlib import Path

from agent_kernel.cli.base.command import DATA_DIR, JSON, Command, argument, settings_of
from agent_kernel.cli.base.output import Column, join, moment, show
from agent_kernel.core.trusted_folders import TrustStore


def trust(args: argparse.Namespace) -> int:
    trust_store = TrustStore(settings_of(args).trust_path)
    if args.folder is None:
        folders = [
            {"path": str(folder.path), "since": folder.since, "files": sorted(folder.files)}
            for folder in trust_store.folders()
        ]
        columns = {"path": Column("FOLDER"), "since": Column("SINCE", moment), "files": Column("AS IT WAS", join)}
        show(folders, columns, as_json=args.json, empty="No folder is trusted.")
        return 0
    if args.remove:
        removed = trust_store.remove(args.folder)
        print(f"{args.folder} {'is no longer trusted' if removed else 'was not on the list of trusted folders'}.")
        return 0 if removed else 1
    added = trust_store.add(args.folder)
    servers = f", and the MCP servers of its {', '.join(added.files)} as it is now" if added.files else ""
    used = f"its AGENTS.md, skills in its .agents/skills{servers}"
    print(f"{added.path} is trusted, including its subfolders. Turns use {used}.")
    return 0


TRUST_ARGUMENTS = (
    argument("folder", type=Path, nargs="?", help="the folder to trust; without it, list the trusted folders"),
    argument("--remove", action="store_true", help="stop trusting the folder"),
    JSON,
    DATA_DIR,
)
TRUST = Command(
    "trust", "manage folders whose own instructions, skills and MCP servers are used", trust, TRUST_ARGUMENTS
)
