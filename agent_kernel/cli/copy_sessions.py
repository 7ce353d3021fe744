"""``agent-kernel sessions copy``: copies all sessions from one store, or from files of another framework, into a
store."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from agent_kernel.cli.base.command import Command, argument
from agent_kernel.cli.base.output import printable
from agent_kernel.cli.base.store_access import ALL_NAMESPACES, namespace_of, open_configured_store, store_arguments
from agent_kernel.core.errors import InvalidRequest, StoreCorrupt
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import NotebookBinding
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.adapters.framework_files import FrameworkFiles, FrameworkSession, check_path
from agent_kernel.sessions.adapters.openai_agents_database import AgentsDatabase
from agent_kernel.sessions.adapters.selectools_files import open_selectools
from agent_kernel.sessions.export.store_copy import (
    DONE,
    SessionCopy,
    copy_bindings,
    copy_stored_session,
    copyable_sessions,
    write_copy,
)
from agent_kernel.sessions.store.store_url import open_store

CONFIGURED = "configured"
URL = (
    "sqlite:FILE, files:DIRECTORY, postgresql://USER@HOST/DATABASE, redis://HOST, mongodb://HOST/DATABASE, "
    "dynamodb://REGION/TABLE, supabase://KEY@PROJECT.supabase.co, or 'configured': the store of AGENT_KERNEL_STORE, "
    "which keeps a password off the command line"
)
FILES = (
    "openai-agents:FILE (the SQLite file of SQLiteSession, AdvancedSQLiteSession or SQLAlchemySession), or "
    "selectools:PATH (the SQLite file or the directory of its session store)"
)
T = TypeVar("T")


FRAMEWORKS: Mapping[str, Callable[[Path, str], FrameworkFiles]] = MappingProxyType(
    {"openai-agents": AgentsDatabase, "selectools": open_selectools}
)
"""Maps the scheme of a URL to the class that reads the files of that framework. The class is called with the path of
the files, and with the namespace for sessions that have no namespace in the files."""


@dataclass(frozen=True, slots=True)
class UnreadableSession:
    """A session in a file of another framework that was not copied, and why."""

    session: FrameworkSession
    reason: str


@dataclass(slots=True)
class CopyReport:
    """The result of a copy. ``copies`` has one result for each session of the source. ``left_out`` are bindings of
    notebooks that the target binds to another session. ``running`` is the number of sessions that were not copied,
    because a turn of theirs was running."""

    copies: list[SessionCopy] = field(default_factory=list)
    unreadable: list[UnreadableSession] = field(default_factory=list)
    left_out: list[NotebookBinding] = field(default_factory=list)
    running: int = 0

    @property
    def missing(self) -> list[SessionCopy]:
        return [copy for copy in self.copies if copy.state not in DONE]


def sessions_copy(args: argparse.Namespace) -> int:
    """Copy the sessions. Return 0 if the target then has every session of the source, and 1 if something was left
    out."""
    if args.source == args.target:
        raise InvalidRequest("FROM and TO are the same store.", hint="Name two different stores.")
    report = asyncio.run(_copy(args))
    if args.json:
        print(json.dumps(_to_json(report), indent=2))
    else:
        _print(report)
    return 1 if report.missing or report.unreadable or report.left_out or report.running else 0


def _to_json(report: CopyReport) -> dict[str, object]:
    rows: list[dict[str, object]] = [
        {"namespace": copy.key.namespace, "id": copy.key.id, "state": copy.state, "items": copy.items}
        for copy in report.copies
    ]
    rows += [
        {
            "namespace": session.session.namespace,
            "id": session.session.id,
            "state": "unreadable",
            "reason": session.reason,
        }
        for session in report.unreadable
    ]
    notebooks = [
        {"namespace": binding.namespace, "path": binding.path, "session": binding.session}
        for binding in report.left_out
    ]
    return {"sessions": rows, "notebooks_left_out": notebooks, "running": report.running}


def _print(report: CopyReport) -> None:
    counts = Counter([*(copy.state for copy in report.copies), *("unreadable" for _ in report.unreadable)])
    print(", ".join(f"{counts[state]} {state}" for state in sorted(counts)) or "The source has no sessions.")
    for copy in report.missing:
        print(f"{copy.state}: {copy.key.namespace} {printable(copy.key.id)}", file=sys.stderr)
    for session in report.unreadable:
        session_line = (
            f"{printable(session.session.namespace)} {printable(session.session.id)}: {printable(session.reason)}"
        )
        print(f"unreadable: {session_line}", file=sys.stderr)
    for binding in report.left_out:
        print(
            f"not copied, because TO binds this notebook to another session: {printable(binding.path)}", file=sys.stderr
        )
    if report.running:
        print(
            (
                f"{report.running} session(s) were not copied, because they have a "
                "running turn. Run the command again later."
            ),
            file=sys.stderr,
        )
    if counts["differs"]:
        print("Sessions that differ were not changed; --replace overwrites them.", file=sys.stderr)


async def _copy(args: argparse.Namespace) -> CopyReport:
    scheme, _, place = args.source.partition(":")
    async with AsyncExitStack() as opened:
        if scheme in FRAMEWORKS:
            path = await asyncio.to_thread(check_path, scheme, place)
            files = FRAMEWORKS[scheme](path, namespace_of(args))
            sessions = await asyncio.to_thread(files.sessions)  # the source is read before the target is created
            return await _copy_files(args, files, sessions, await _open(args, args.target, opened))
        source = await _open(args, args.source, opened, must_exist=True)
        target = await _open(args, args.target, opened)
        keys, running = await copyable_sessions(source, args.namespace)
        copies = [
            await copy_stored_session(source, target, key, replace=args.replace) for key in _count(keys, len(keys))
        ]
        done = [copy.key for copy in copies if copy.state in DONE and copy.state != "gone"]
        return CopyReport(copies, left_out=await copy_bindings(source, target, done), running=running)


async def _copy_files(
    args: argparse.Namespace, files: FrameworkFiles, sessions: list[FrameworkSession], target: PersistentStore
) -> CopyReport:
    report = CopyReport()
    chosen = [session for session in sessions if args.namespace in (None, session.namespace)]
    seen: set[tuple[str, str]] = set()
    for session in _count(chosen, len(chosen)):
        if (place := (session.namespace, session.id)) in seen:
            # With --replace, this session would overwrite the copy of the other session.
            reason = "Another session of the source has the same namespace and id."
            report.unreadable.append(UnreadableSession(session, reason))
            continue
        seen.add(place)
        try:
            original: Transcript | None = await asyncio.to_thread(files.read, session)
        except (InvalidRequest, StoreCorrupt) as error:
            report.unreadable.append(UnreadableSession(session, error.message))
            continue
        if original is None:  # the session was deleted meanwhile
            continue
        try:
            report.copies.append(await write_copy(original, target, replace=args.replace))
        except InvalidRequest as error:  # the session has content that no store accepts
            report.unreadable.append(UnreadableSession(session, error.message))
    return report


def _count(sessions: Iterable[T], total: int) -> Iterator[T]:
    """Yield the sessions, and show on a terminal how many of them were yielded so far."""
    for number, session in enumerate(sessions, start=1):
        if sys.stderr.isatty():
            end = "\n" if number == total else ""
            print(f"\r{number} of {total}", end=end, file=sys.stderr, flush=True)
        yield session


async def _open(
    args: argparse.Namespace, url: str, opened: AsyncExitStack, *, must_exist: bool = False
) -> PersistentStore:
    """Open the store ``url``; ``opened`` closes it. Raises InvalidRequest for a store in memory. With ``must_exist``,
    also raises InvalidRequest for a path that does not exist."""
    if url == CONFIGURED:
        return await opened.enter_async_context(open_configured_store(args))
    scheme, _, place = url.partition(":")
    if scheme in FRAMEWORKS:
        raise InvalidRequest(
            f"Files of {scheme} can only be read: they can be the source (FROM), not the target (TO).",
            hint="Use sqlite:FILE or another store.",
        )
    if scheme == "memory":
        raise InvalidRequest(
            "A store in memory cannot be copied from or to: its sessions are lost when this command ends.",
            hint="Use sqlite:FILE or another store.",
        )
    if (
        must_exist
        and scheme in ("sqlite", "files")
        and not await asyncio.to_thread(lambda: Path(place).expanduser().exists())
    ):
        raise InvalidRequest(f"There is no store at {place}.", hint="To list your stores: agent-kernel where")
    store = open_store(url)
    opened.push_async_callback(store.aclose)
    return store


COPY_ARGUMENTS = (
    argument("source", metavar="FROM", help=f"{URL}; or files of another framework: {FILES}"),
    argument("target", metavar="TO", help="a store in the same form; it may contain sessions already"),
    argument(
        "--replace",
        action="store_true",
        help="also overwrite sessions of TO that contain something that the same session of FROM lacks",
    ),
    *store_arguments(ALL_NAMESPACES),
)
COPY = Command("copy", "copy all sessions into another store, and verify each copy", sessions_copy, COPY_ARGUMENTS)
