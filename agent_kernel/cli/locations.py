"""``agent-kernel where``: every location that holds data of agent-kernel, with its size."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from agent_kernel.cli.base import store_access
from agent_kernel.cli.base.command import Command, cache_argument, settings_of
from agent_kernel.cli.base.output import Column, show, size
from agent_kernel.cli.base.store_access import as_json, every_namespace, run_with_store
from agent_kernel.core.session import NotebookBinding
from agent_kernel.core.storage_locations import StorageLocation, existing_locations

UNKNOWN = "agent-kernel does not know about exports, copies of notebooks, backups, and outputs saved in notebooks."


def where_arguments(parser: argparse.ArgumentParser) -> None:
    store_access.arguments(parser, namespace="default: all")
    cache_argument(parser)


def where(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    locations = existing_locations(settings, _bindings(args))
    rows = [_row(place) for place in locations]
    columns = {
        "kind": Column("KIND"),
        "bytes": Column("SIZE", size, right=True),
        "path": Column("PATH"),
        "holds": Column("HOLDS"),
    }
    show(rows, columns, as_json=as_json(args), empty="agent-kernel stores no data on this machine.")
    if not as_json(args):
        print(f"\n{size(sum(row['bytes'] for row in rows))} in all. {UNKNOWN}")
    return 0


def _row(place: StorageLocation) -> dict[str, Any]:
    row = {"kind": place.kind, "path": str(place.path), "bytes": place.bytes}
    return row | {"holds": place.holds, "private": place.private}


def _bindings(args: argparse.Namespace) -> Sequence[NotebookBinding]:
    """Return the bindings without creating a store."""
    settings = settings_of(args)
    file = {"sqlite": "sessions.db", "files": "sessions"}.get(settings.store, "")
    if settings.store == "memory" or not (settings.data_dir / file).exists():
        return []
    return run_with_store(args, lambda store: store.bindings(every_namespace(args)))


WHERE = Command("where", "list every location that holds data of agent-kernel, with its size", where_arguments, where)
