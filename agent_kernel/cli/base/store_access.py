"""Open the session store for a command: the store of the user's servers, also while they run."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from agent_kernel.cli.base.command import assembly, data_argument, settings_of
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import KeptStore
from agent_kernel.core.settings import Settings

T = TypeVar("T")
CARE = ("verify", "repair", "stats", "vacuum", "bindings", "forget_set_aside", "idle", "excess")
LOCAL = "local"
"""Namespace of a server without named users."""


def arguments(parser: argparse.ArgumentParser, *, namespace: str = "default: AGENT_KERNEL_NAMESPACE, or local") -> None:
    """Add the arguments that all store commands have."""
    parser.add_argument(
        "--namespace", default=argparse.SUPPRESS, help=f"namespace of the sessions (default: {namespace})"
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON instead of text")
    data_argument(parser)


def namespace_of(args: argparse.Namespace) -> str:
    return settings_of(args).namespace or LOCAL


def every_namespace(args: argparse.Namespace) -> str | None:
    """Return the namespace of the command line, or None for all."""
    return getattr(args, "namespace", None)


def as_json(args: argparse.Namespace) -> bool:
    return bool(getattr(args, "json", False))


@asynccontextmanager
async def open_store(args: argparse.Namespace) -> AsyncIterator[KeptStore]:
    """Open the store. Raises StoreError, and InvalidRequest for a store in a server's memory or without maintenance."""
    settings: Settings = settings_of(args)
    if settings.store == "memory":
        raise InvalidRequest(
            "The store 'memory' exists only in the memory of a server, and ends with it.",
            hint="Use that server's API, or select another store with AGENT_KERNEL_STORE.",
        )
    runtime = assembly()
    store: KeptStore = runtime.build_store(settings)
    try:
        lacking = [name for name in CARE if not hasattr(store, name)]
        if lacking:
            raise InvalidRequest(f"The store {settings.store_name!r} cannot do this: it has no {', '.join(lacking)}.")
        yield store
    finally:
        await store.aclose()


def run_with_store(args: argparse.Namespace, use: Callable[[KeptStore], Awaitable[T]]) -> T:
    """Open the store, call ``use`` with it, and return the result. Raises StoreError, InvalidRequest."""

    async def run() -> T:
        async with open_store(args) as store:
            return await use(store)

    return asyncio.run(run())


def confirm(args: argparse.Namespace, question: str) -> bool:
    """Ask for confirmation. Raises InvalidRequest if there is no terminal."""
    if args.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidRequest(
            "This needs confirmation and there is no terminal; nothing was done.", hint="Add --yes to confirm."
        )
    return ask_yes(question)


def ask_yes(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
