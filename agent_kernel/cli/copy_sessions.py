"""``agent-kernel sessions copy``: copies all sessions from one store into another."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import Command, argument
from agent_kernel.cli.base.output import printable
from agent_kernel.cli.base.store_access import ALL_NAMESPACES, open_configured_store, store_arguments
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import KeptStore
from agent_kernel.sessions.export.store_copy import (
    DONE,
    SessionCopy,
    copy_bindings,
    copy_stored_session,
    copyable_sessions,
)
from agent_kernel.sessions.store.store_url import open_store

CONFIGURED = "configured"
URL = (
    "sqlite:FILE, files:DIRECTORY, postgresql://USER@HOST/DATABASE, redis://HOST, mongodb://HOST/DATABASE, "
    "dynamodb://REGION/TABLE, supabase://KEY@PROJECT.supabase.co, or 'configured': the store of AGENT_KERNEL_STORE, "
    "which keeps a password off the command line"
)


def sessions_copy(args: argparse.Namespace) -> int:
    """Copy the sessions. Return 0 if the target then has every session of the source, and 1 if something was left
    out."""
    if args.source == args.target:
        raise InvalidRequest("FROM and TO are the same store.", hint="Name two different stores.")
    copies, left_out, running = asyncio.run(_copy(args))
    missing = [copy for copy in copies if copy.state not in DONE]
    counts = Counter(copy.state for copy in copies)
    if args.json:
        rows = [{"namespace": it.key.namespace, "id": it.key.id, "state": it.state, "items": it.items} for it in copies]
        notebooks = [{"namespace": it.namespace, "path": it.path, "session": it.session} for it in left_out]
        print(json.dumps({"sessions": rows, "notebooks_left_out": notebooks, "running": running}, indent=2))
    else:
        print(", ".join(f"{counts[state]} {state}" for state in sorted(counts)) or "The source has no sessions.")
        for copy in missing:
            print(f"{copy.state}: {copy.key.namespace} {printable(copy.key.id)}", file=sys.stderr)
        for binding in left_out:
            print(f"the target binds this notebook to another session: {printable(binding.path)}", file=sys.stderr)
        if running:
            print(f"{running} session(s) have a running turn: run the command again later.", file=sys.stderr)
        if counts["differs"]:
            print("Sessions that differ were not changed; --replace overwrites them.", file=sys.stderr)
    return 1 if missing or left_out or running else 0


async def _copy(args: argparse.Namespace) -> tuple[list[SessionCopy], list[Any], int]:
    async with AsyncExitStack() as opened:
        source = await _open(args, args.source, opened, must_exist=True)
        target = await _open(args, args.target, opened)
        keys, running = await copyable_sessions(source, args.namespace)
        copies = []
        for number, key in enumerate(keys, start=1):
            if sys.stderr.isatty():
                end = "\n" if number == len(keys) else ""
                print(f"\r{number} of {len(keys)}", end=end, file=sys.stderr, flush=True)
            copies.append(await copy_stored_session(source, target, key, replace=args.replace))
        done = [copy.key for copy in copies if copy.state in DONE and copy.state != "gone"]
        return copies, await copy_bindings(source, target, done), running


async def _open(args: argparse.Namespace, url: str, opened: AsyncExitStack, *, must_exist: bool = False) -> KeptStore:
    """Open the store ``url``; ``opened`` closes it. Raises InvalidRequest for a store in memory. With ``must_exist``,
    raises it for a path that does not exist as well."""
    if url == CONFIGURED:
        return await opened.enter_async_context(open_configured_store(args))
    scheme, _, place = url.partition(":")
    if scheme == "memory":
        raise InvalidRequest("A store in memory ends with this command.", hint="Use sqlite:FILE or another store.")
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
    argument("source", metavar="FROM", help=URL),
    argument("target", metavar="TO", help="a store in the same form; it may contain sessions already"),
    argument(
        "--replace",
        action="store_true",
        help="also overwrite sessions of TO that contain something that the same session of FROM lacks",
    ),
    *store_arguments(ALL_NAMESPACES),
)
COPY = Command("copy", "copy all sessions into another store, and verify each copy", sessions_copy, COPY_ARGUMENTS)
