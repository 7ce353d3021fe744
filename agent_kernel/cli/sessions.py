"""``agent-kernel sessions``: lists, shows, searches, copies and deletes stored conversations."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from agent_kernel.cli.base.command import YES, Command, add_commands, argument, settings_of
from agent_kernel.cli.base.output import Column, facts, join, moment, printable, show, size, turn_count, wrap
from agent_kernel.cli.base.store_access import (
    ALL_NAMESPACES,
    LOCAL,
    confirm,
    namespace_of,
    run_with_store,
    store_arguments,
)
from agent_kernel.cli.copy_sessions import COPY
from agent_kernel.cli.export_import import EXCHANGE_COMMANDS
from agent_kernel.cli.usage import USAGE
from agent_kernel.core.errors import BranchNotFound, InvalidRequest, SessionNotFound
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import Item, Session, SessionKey, SessionQuery, StoreFault, Turn, new_id
from agent_kernel.sessions.retention.limits import RetentionLimits, seconds
from agent_kernel.sessions.retention.retention import DueSession, Retention

# ``agent-kernel sessions verify``, ``repair``, ``vacuum``, ``stats`` and ``expire``: checks, repairs and cleans the
# session store.


FAULT = {
    "namespace": Column("NAMESPACE"),
    "session": Column("SESSION"),
    "kind": Column("KIND"),
    "detail": Column("WHAT"),
    "mended": Column("MENDED"),
}
STATISTICS = {
    "sessions": "conversations",
    "items": "messages",
    "bytes": "text of the messages",
    "media": "pictures and other media",
    "media_bytes": "size of these media",
    "files": "attached and produced files",
    "bindings": "notebooks with a conversation",
    "set_aside": "damaged entries set aside",
    "first_made": "first conversation begun",
    "last_used": "last used",
    "file_bytes": "size of the database",
}
"""What people read in place of the names that the store has for its numbers."""
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
LISTED = 50
FOUND = 5
ID = argument("id", help="a session id from 'agent-kernel sessions list'")
LIST_ARGUMENTS = (
    *store_arguments(),
    argument(
        "--limit",
        type=int,
        default=argparse.SUPPRESS,
        help=f"maximum number, most recently used first (default: {LISTED})",
    ),
)
SHOW_ARGUMENTS = (
    ID,
    argument("--limit", type=int, help="show only this many newest messages"),
    argument("--branch", help="branch to show (default: the current one)"),
    *store_arguments(),
)
SEARCH_ARGUMENTS = (
    argument("words", nargs="+", help="words to search; any of them matches, also within a word, ignoring case"),
    argument("--limit", type=int, default=FOUND, help=f"maximum number of sessions (default: {FOUND})"),
    argument("--role", choices=("user", "assistant"), default="", help="role of the messages (default: both)"),
    argument("--since", default="", metavar="TIME", help="only messages of this period, such as 24h or 30d"),
    *store_arguments(),
)
FORK_ARGUMENTS = (
    ID,
    argument("new", nargs="?", help="id of the copy (default: a generated one)"),
    argument("--turns", type=int, help="copy the turns up to the answered one with this number"),
    *store_arguments(),
)


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
        values = {STATISTICS.get(name, name): value for name, value in values.items()}
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


CARE_COMMANDS = (
    Command("verify", "check the store; exit code 1 if something is inconsistent", sessions_verify, STORE),
    Command(
        "repair",
        "repair what verify finds; set aside rows that cannot be repaired, without deleting them",
        sessions_repair,
        STORE,
    ),
    Command("vacuum", "free unused disk space; deleted text can no longer be recovered", sessions_vacuum, STORE),
    Command("stats", "show how much the store contains: numbers and sizes", sessions_stats, STORE),
    Command(
        "expire", "remove sessions that are unused for long, or exceed the limits", sessions_expire, EXPIRE_ARGUMENTS
    ),
)


def session_row(session: Session) -> dict[str, Any]:
    names = ("title", "revision", "branch", "created", "updated", "accessed")
    return {
        "id": session.key.id,
        "namespace": session.key.namespace,
        **{name: getattr(session, name) for name in names},
        "turns": session.turn_count,
        "head": session.last_seq,
        "tags": list(session.tags),
        "metadata": dict(session.metadata),
        "imported": None if session.imported is None else dict(session.imported),
    }


# ---------------------------------------------------------------------------------------------------- list, show


def sessions_list(args: argparse.Namespace) -> int:
    limit = getattr(args, "limit", LISTED)
    sessions = run_with_store(args, lambda store: store.list(namespace_of(args), limit))
    columns = {
        "id": Column("ID"),
        "updated": Column("USED", moment),
        "turns": Column("TURNS", right=True),
        "title": Column("TITLE"),
        "tags": Column("TAGS", join),
    }
    rows = [session_row(session) for session in sessions]
    where = "" if namespace_of(args) == LOCAL else f" in the namespace {namespace_of(args)}"
    show(rows, columns, as_json=args.json, empty=f"No conversations are stored{where} yet.")
    return 0


def sessions_show(args: argparse.Namespace) -> int:
    async def read(store: PersistentStore) -> tuple[Session, list[Turn], list[Item]]:
        key = SessionKey(namespace_of(args), args.id)
        session = await store.info(key)
        if session is None:
            raise SessionNotFound(f"There is no session {args.id!r}.", hint="See: agent-kernel sessions list")
        if args.branch and all(args.branch != branch.name for branch in await store.branches(key)):
            raise BranchNotFound(f"There is no branch {args.branch!r}.", details={"branch": args.branch})
        items = await store.latest(key, args.limit, branch=args.branch)
        return session, await store.turns(key, branch=args.branch), items

    session, turns, items = run_with_store(args, read)
    if args.json:
        print(json.dumps(session_row(session) | {"turns": _turns(turns), "items": _items(items)}, indent=2))
        return 0
    print(f"{session.key.id}  {printable(session.title)}")
    print(
        f"{turn_count(len(turns))}, used {moment(session.updated)}, branch {printable(args.branch or session.branch)}"
    )
    for item in items:
        print(f"\n--- {item.seq} {item.message.role}, {moment(item.time)}")
        print(_text(item.message))
    return 0


def _turns(turns: list[Turn]) -> list[dict[str, Any]]:
    skipped = ("key", "usage", "record")
    names = [field.name for field in dataclasses.fields(Turn) if field.name not in skipped]
    return [
        {name: getattr(turn, name) for name in names} | {"usage": dict(turn.usage), "record": dict(turn.record)}
        for turn in turns
    ]


def _items(items: list[Item]) -> list[dict[str, Any]]:
    return [
        {"seq": item.seq, "turn": item.turn, "time": item.time, "message": item.message.to_json()} for item in items
    ]


def _text(message: Message) -> str:
    lines = [printable(line) for line in message.text.splitlines()]
    lines += [f"[{medium.mime}, {medium.size} bytes]" for medium in message.media]
    for call in message.calls:
        lines.append(f"[calls {printable(call.name)}]")
        lines += [f"    {printable(line)}" for value in call.arguments.values() for line in str(value).splitlines()]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- search


def sessions_search(args: argparse.Namespace) -> int:
    since = time.time() - seconds(args.since, "--since") if args.since else None
    query = SessionQuery(" ".join(args.words), limit=args.limit, role=args.role, since=since)
    hits = run_with_store(args, lambda store: store.search(namespace_of(args), query))
    if args.json:
        rows = [
            session_row(hit.session)
            | {"score": hit.score, "snippets": [dataclasses.asdict(snippet) for snippet in hit.snippets]}
            for hit in hits
        ]
        print(json.dumps(rows, indent=2))
        return 0 if hits else 1
    for hit in hits:
        print(wrap(f"{hit.session.key.id}  {moment(hit.session.updated)}  {printable(hit.session.title)}", 4))
        for snippet in hit.snippets:
            print(wrap(f"    {snippet.seq:>5} {snippet.role:<10}{printable(snippet.text)}", 20))
    if not hits:
        print("No match.", file=sys.stderr)
    return 0 if hits else 1


# ---------------------------------------------------------------------------------------------------- fork, delete


def sessions_fork(args: argparse.Namespace) -> int:
    source = SessionKey(namespace_of(args), args.id)
    target = SessionKey(source.namespace, args.new or new_id("session"))
    session = run_with_store(args, lambda store: store.fork(source, target, args.turns))
    print(json.dumps(session_row(session), indent=2) if args.json else session.key.id)
    return 0


def sessions_delete(args: argparse.Namespace) -> int:
    """Delete sessions from the store. Return 0, or 1 if the user did not confirm. Traces outside the store, such as the
    files beside notebooks, stay; 'agent-kernel purge' removes those too. Raises SessionNotFound instead of asking the
    user about a session that does not exist."""
    if not args.yes:
        _require_sessions(args)
    if not confirm(args, f"Delete {len(args.id)} session(s) of {namespace_of(args)}?"):
        return 1

    async def delete(store: PersistentStore) -> list[dict[str, Any]]:
        return [{"id": id, "deleted": await store.delete(SessionKey(namespace_of(args), id))} for id in args.id]

    rows = run_with_store(args, delete)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(f"{row['id']}  {'deleted' if row['deleted'] else 'did not exist'}")
    return 0


def _require_sessions(args: argparse.Namespace) -> None:
    async def find_missing(store: PersistentStore) -> list[str]:
        return [id for id in args.id if await store.info(SessionKey(namespace_of(args), id)) is None]

    if missing := run_with_store(args, find_missing):
        raise SessionNotFound(
            f"There is no session {', '.join(map(repr, missing))}.", hint="See: agent-kernel sessions list"
        )


SESSION_COMMANDS = (
    Command("list", "list sessions, most recently used first", sessions_list, LIST_ARGUMENTS),
    Command("show", "show the messages of a session", sessions_show, SHOW_ARGUMENTS),
    Command("search", "search for sessions that contain any of the words", sessions_search, SEARCH_ARGUMENTS),
    *EXCHANGE_COMMANDS,
    COPY,
    Command("fork", "copy a session", sessions_fork, FORK_ARGUMENTS),
    Command(
        "delete",
        "delete sessions from the store (see also: agent-kernel purge)",
        sessions_delete,
        (argument("id", nargs="+", help="session ids from 'agent-kernel sessions list'"), YES, *store_arguments()),
    ),
    USAGE,
    *CARE_COMMANDS,
)
SESSIONS = Command(
    "sessions",
    "manage stored conversations; without a subcommand: list",
    sessions_list,
    (*LIST_ARGUMENTS, lambda parser: add_commands(parser.add_subparsers(metavar="COMMAND"), SESSION_COMMANDS)),
)
