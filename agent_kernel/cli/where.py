"""``agent-kernel where``: lists every location that contains data of agent-kernel, with its size."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from agent_kernel.cli.base.command import CACHE_DIR, Command, settings_of
from agent_kernel.cli.base.output import Column, show, size
from agent_kernel.cli.base.store_access import ALL_NAMESPACES, report_other_place, run_with_store, store_arguments
from agent_kernel.core.session import NotebookBinding
from agent_kernel.sessions.storage_locations import existing_locations

UNKNOWN = "agent-kernel does not know about exports, copies of notebooks, backups, and outputs saved in notebooks."


def where(args: argparse.Namespace) -> int:
    names = ("kind", "bytes", "holds", "private")
    rows: list[dict[str, Any]] = [
        {"path": str(place.path), **{name: getattr(place, name) for name in names}}
        for place in existing_locations(settings_of(args), _bindings(args))
    ]
    columns = {
        "kind": Column("KIND"),
        "bytes": Column("SIZE", size, right=True),
        "path": Column("PATH"),
        "holds": Column("HOLDS"),
    }
    show(rows, columns, as_json=args.json, empty="agent-kernel stores no data on this machine.")
    if not args.json:
        print(f"\n{size(sum(row['bytes'] for row in rows))} in all. {UNKNOWN}")
    return 0


def _bindings(args: argparse.Namespace) -> Sequence[NotebookBinding]:
    """Return the bindings of sessions to notebooks. If there is no store yet, return none and do not create one."""
    settings = settings_of(args)
    file = {"sqlite": "sessions.db", "files": "sessions"}.get(settings.store, "")
    if settings.store == "memory" or not (settings.data_dir / file).exists():
        report_other_place(args)
        return []
    return run_with_store(args, lambda store: store.bindings(args.namespace))


WHERE = Command(
    "where",
    "list every location that holds data of agent-kernel, with its size",
    where,
    (*store_arguments(ALL_NAMESPACES), CACHE_DIR),
)
