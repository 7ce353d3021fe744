"""``agent-kernel sessions usage``: the tokens and seconds that turns used."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from agent_kernel.cli.base import store_access
from agent_kernel.cli.base.command import Command
from agent_kernel.cli.base.output import Column, show
from agent_kernel.cli.base.store_access import as_json, every_namespace, namespace_of, run_with_store
from agent_kernel.core.errors import SessionNotFound
from agent_kernel.core.seams.session_store import KeptStore
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


def usage_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", default="", help="id of one session (default: all without a running turn)")
    store_access.arguments(parser, namespace="default: all; of one session: AGENT_KERNEL_NAMESPACE, or local")


def sessions_usage(args: argparse.Namespace) -> int:
    async def report(store: KeptStore) -> dict[str, Any]:
        return (await account(store, await _sessions(store, args))).to_json()

    usage = run_with_store(args, report)
    if as_json(args):
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


async def _sessions(store: KeptStore, args: argparse.Namespace) -> list[Session]:
    """Return the sessions to report. Raises SessionNotFound."""
    if not args.id:
        namespace = every_namespace(args)
        return [session for session in await store.idle(math.inf) if namespace in (None, session.key.namespace)]
    session = await store.info(SessionKey(namespace_of(args), args.id))
    if session is None:
        raise SessionNotFound(f"There is no session {args.id}.")
    return [session]


USAGE_COMMANDS = (
    Command(
        "usage", "show what turns cost: tokens and seconds by model, day and tool", usage_arguments, sessions_usage
    ),
)
