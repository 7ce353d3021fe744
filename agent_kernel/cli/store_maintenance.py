"""``agent-kernel sessions verify``, ``repair``, ``vacuum``, ``stats`` and ``expire``: checks, repairs and cleans the
session store."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from agent_kernel.cli.base.command import YES, Command, argument, settings_of
from agent_kernel.cli.base.output import Column, facts, moment, show, size
from agent_kernel.cli.base.store_access import ALL_NAMESPACES, confirm, run_with_store, store_arguments
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import StoreFault
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.retention.retention import DueSession, Retention

FAULT = {
    "namespace": Column("NAMESPACE"),
    "session": Column("SESSION"),
    "kind": Column("KIND"),
    "detail": Column("WHAT"),
    "mended": Column("MENDED"),
}


def sessions_verify(args: argparse.Namespace) -> int:
    """Print the faults of the store. Return 1 if it has any, otherwise 0."""
    faults = run_with_store(args, lambda store: store.verify(args.namespace))
    return _show_faults(args, faults, "The store has no faults.")


def sessions_repair(args: argparse.Namespace) -> int:
    """Repair the store and print its faults. Return 1 if a fault could not be repaired, otherwise 0."""
    faults = run_with_store(args, lambda store: store.repair(args.namespace))
    return _show_faults(args, faults, "The store had no faults.")


def _show_faults(args: argparse.Namespace, faults: Sequence[StoreFault], fine: str) -> int:
    columns = {key: column for key, column in FAULT.items() if key != "mended" or any(fault.mended for fault in faults)}
    show([dataclasses.asdict(fault) for fault in faults], columns, as_json=args.json, empty=fine)
    return 1 if any(not fault.mended for fault in faults) else 0


def sessions_stats(args: argparse.Namespace) -> int:
    values = dict(run_with_store(args, lambda store: store.stats(args.namespace)))
    if not args.json:
        values |= {name: size(value) for name, value in values.items() if name.endswith("bytes")}
        values |= {name: moment(values[name]) if values[name] else "never" for name in ("first_made", "last_used")}
    facts(values, as_json=args.json)
    return 0


def sessions_vacuum(args: argparse.Namespace) -> int:
    count = run_with_store(args, lambda store: store.vacuum())
    print(json.dumps({"freed_bytes": count}) if args.json else f"{size(count)} freed; deleted text is gone.")
    return 0


def sessions_expire(args: argparse.Namespace) -> int:
    """Remove the sessions that exceed the configured limits, as a server does automatically. Unlike a server, this
    command does not notify observers."""
    limits = RetentionLimits.of(settings_of(args))
    if not (limits.ttl or limits.max_sessions):
        raise InvalidRequest(
            "No retention limit is set, so no session was removed.", hint="Use --ttl, --max-sessions or --limits."
        )

    async def remove_due(store: PersistentStore) -> list[DueSession]:
        retention = Retention(store, limits)
        due = [session for session in await retention.due() if args.namespace in (None, session.session.key.namespace)]
        if args.dry_run or not due:
            return due
        if not confirm(args, f"Remove {len(due)} session(s)?"):
            return []
        return [session for session in due if await retention.remove(session.session)]

    rows = [_row(due) for due in run_with_store(args, remove_due)]
    columns = {
        "namespace": Column("NAMESPACE"),
        "id": Column("ID"),
        "accessed": Column("USED", moment),
        "why": Column("WHY"),
        "title": Column("TITLE"),
    }
    show(rows, columns, as_json=args.json, empty="No session exceeds the limits.")
    if rows and not args.json:
        print("would be removed" if args.dry_run else "removed", file=sys.stderr)
    return 0


def _row(due: DueSession) -> dict[str, Any]:
    session = due.session
    facts = {name: getattr(session, name) for name in ("title", "turns", "accessed")}
    return {"namespace": session.key.namespace, "id": session.key.id, "why": due.why} | facts


STORE = store_arguments(ALL_NAMESPACES)
EXPIRE_ARGUMENTS = (
    argument("--limits", help="retention preset: keep, mistralrs or nexo (default: AGENT_KERNEL_LIMITS)"),
    argument("--ttl", help="remove sessions unused for this long, such as 24h or 30d (default: AGENT_KERNEL_TTL)"),
    argument(
        "--max-sessions",
        type=int,
        help="maximum number of sessions in a namespace; the least recently used ones beyond it are removed",
    ),
    argument("--dry-run", action="store_true", help="only show what would be removed, and why"),
    YES,
    *STORE,
)
CARE_COMMANDS = (
    Command("verify", "check the store; exit code 1 if something is inconsistent", sessions_verify, STORE),
    Command(
        "repair",
        "repair what verify finds; separate what cannot be repaired, without deleting it",
        sessions_repair,
        STORE,
    ),
    Command("vacuum", "free unused space; deleted text is then gone", sessions_vacuum, STORE),
    Command("stats", "show counts and sizes", sessions_stats, STORE),
    Command(
        "expire", "remove sessions that are unused for long, or exceed the limits", sessions_expire, EXPIRE_ARGUMENTS
    ),
)
