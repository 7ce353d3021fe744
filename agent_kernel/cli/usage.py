"""``agent-kernel sessions usage``: reports the tokens and seconds that turns used."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from agent_kernel.cli.base.command import Command, argument
from agent_kernel.cli.base.output import Column, show
from agent_kernel.cli.base.store_access import (
    ALL_NAMESPACES,
    OWN_NAMESPACE,
    namespace_of,
    run_with_store,
    store_arguments,
)
from agent_kernel.core.errors import SessionNotFound
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import Session, SessionKey
from agent_kernel.sessions.usage_report import account

COST = {
    "of": Column(""),
    "name": Column(""),
    "turns": Column("TURNS", right=True),
    "summaries": Column("SUMMARIES", right=True),
    "prompt_tokens": Column("READ", "{:,}".format, right=True),
    "reused_tokens": Column("REUSED", "{:,}".format, right=True),
    "completion_tokens": Column("WRITTEN", "{:,}".format, right=True),
    "seconds": Column("SECONDS", "{:,.1f}".format, right=True),
}
TOOL = {
    "tool": Column("TOOL"),
    "count": Column("CALLS", right=True),
    "seconds": Column("SECONDS", "{:,.1f}".format, right=True),
    "outcomes": Column("OUTCOMES", lambda counts: ", ".join(f"{number} {status}" for status, number in counts.items())),
}


def sessions_usage(args: argparse.Namespace) -> int:
    async def report(store: PersistentStore) -> dict[str, Any]:
        return (await account(store, await _sessions(store, args))).to_json()

    usage = run_with_store(args, report)
    if args.json:
        print(json.dumps(usage, indent=2))
        return 0
    rows = [{"of": "all", "name": "", **usage["total"]}]
    for part, of in (("models", "model"), ("days", "day")):
        rows += [{"of": of, "name": name, **cost} for name, cost in usage[part].items()]
    show(rows, COST, as_json=False)
    if usage["total"]["estimated"]:
        print("Some token counts are estimated, because the engine did not report them.")
    if tools := [{"tool": name, **use} for name, use in usage["tools"].items()]:
        print()
        show(tools, TOOL, as_json=False)
    return 0


async def _sessions(store: PersistentStore, args: argparse.Namespace) -> list[Session]:
    """Return the sessions to report: the one that the user names, or all of them. Raises SessionNotFound."""
    if not args.id:
        return [session for session in await store.idle(math.inf) if args.namespace in (None, session.key.namespace)]
    session = await store.info(SessionKey(namespace_of(args), args.id))
    if session is None:
        raise SessionNotFound(f"There is no session {args.id!r}.", hint="See: agent-kernel sessions list")
    return [session]


USAGE_ARGUMENTS = (
    argument("id", nargs="?", default="", help="id of one session (default: all sessions that have no running turn)"),
    *store_arguments(f"{ALL_NAMESPACES}; with an id: {OWN_NAMESPACE}"),
)
USAGE = Command(
    "usage", "show what turns cost: tokens and seconds by model, day and tool", sessions_usage, USAGE_ARGUMENTS
)
