"""Opens the configured session store for a command, also while a server uses the same store. Asks the user to confirm
changes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

from agent_kernel.cli.base import jupyter_configuration
from agent_kernel.cli.base.command import DATA_DIR, JSON, Argument, argument, import_runtime, settings_of
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import PersistentStore

T = TypeVar("T")
CARE = ("verify", "repair", "stats", "vacuum", "bindings", "forget_set_aside", "idle", "excess")
LOCAL = "local"
"""Namespace of the sessions of a server without named users."""
ALL_NAMESPACES = "all"
OWN_NAMESPACE = "AGENT_KERNEL_NAMESPACE, or local"


def store_arguments(namespace: str = OWN_NAMESPACE) -> tuple[Argument, ...]:
    """Return the arguments that all commands with access to the store have. ``namespace`` is the text that the help of
    --namespace shows as its default."""
    what = f"namespace of the sessions (default: {namespace})"
    return argument("--namespace", default=argparse.SUPPRESS, help=what), JSON, DATA_DIR


def namespace_of(args: argparse.Namespace) -> str:
    return settings_of(args).namespace or LOCAL


def report_other_place(args: argparse.Namespace) -> None:
    """Say once that a configuration file of Jupyter sets another place of the data, unless the user has chosen one."""
    if args.data_dir is None and not getattr(args, "place_reported", False):
        args.place_reported = True
        jupyter_configuration.report_other_place(settings_of(args))


@asynccontextmanager
async def open_configured_store(args: argparse.Namespace) -> AsyncIterator[PersistentStore]:
    """Open the configured store, and close it at the end of the context. Raises StoreError. Raises InvalidRequest for a
    store that exists only in a server's memory, and for one without the methods for maintenance."""
    report_other_place(args)
    settings = settings_of(args)
    if settings.store == "memory":
        raise InvalidRequest(
            "The store 'memory' exists only in the memory of a server, so this command cannot read it.",
            hint="Use the server's API, or select another store with AGENT_KERNEL_STORE.",
        )
    store: PersistentStore = import_runtime().build_store(settings)
    async with aclosing(store):
        lacking = [name for name in CARE if not hasattr(store, name)]
        if lacking:
            raise InvalidRequest(
                (
                    f"This command cannot use the store {settings.store_name!r}, which "
                    f"lacks the methods {', '.join(lacking)}."
                ),
                hint="Select another store with AGENT_KERNEL_STORE.",
            )
        yield store


def run_with_store(args: argparse.Namespace, use: Callable[[PersistentStore], Awaitable[T]]) -> T:
    """Open the store, call ``use`` with it, and return the result. Raises StoreError, InvalidRequest."""

    async def run() -> T:
        async with open_configured_store(args) as store:
            return await use(store)

    return asyncio.run(run())


def confirm(args: argparse.Namespace, question: str) -> bool:
    """Return whether the user answers ``question`` with yes; --yes counts as yes. Raises InvalidRequest if there is
    neither --yes nor a terminal."""
    if args.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidRequest(
            "This command needs your confirmation, but there is no terminal to ask you. Nothing was changed.",
            hint="Add --yes to confirm.",
        )
    return ask_yes(question)


def ask_yes(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
