"""``agent-kernel sessions``: lists, shows, searches, copies and deletes stored conversations."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

from agent_kernel.cli.base.command import YES, Command, add_commands, argument
from agent_kernel.cli.base.output import Column, join, moment, printable, show, turn_count
from agent_kernel.cli.base.store_access import LOCAL, confirm, namespace_of, run_with_store, store_arguments
from agent_kernel.cli.copy_sessions import COPY
from agent_kernel.cli.export_import import EXCHANGE_COMMANDS
from agent_kernel.cli.store_maintenance import CARE_COMMANDS
from agent_kernel.cli.usage import USAGE
from agent_kernel.core.errors import BranchNotFound, SessionNotFound
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import Item, Session, SessionKey, SessionQuery, Turn, new_id
from agent_kernel.sessions.retention.durations import seconds

LISTED = 50
FOUND = 5


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
        print(f"{hit.session.key.id}  {moment(hit.session.updated)}  {printable(hit.session.title)}")
        for snippet in hit.snippets:
            print(f"    {snippet.seq:>5} {snippet.role:<10}{printable(snippet.text)}")
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
    files beside notebooks, stay; 'agent-kernel purge' removes those too."""
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
    argument("--turns", type=int, help="copy only this many committed turns, from the beginning"),
    *store_arguments(),
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
