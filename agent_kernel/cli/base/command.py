"""The description of a command: its name, its help, its arguments, and a function from arguments to exit status."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from agent_kernel.core.settings import Settings

Run: TypeAlias = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Run


def add(commands: Any, rows: Sequence[Command]) -> None:
    for row in rows:
        parser = commands.add_parser(row.name, help=row.help, description=row.help)
        parser.set_defaults(run=row.run)
        row.arguments(parser)


class CommandParser(argparse.ArgumentParser):
    """A parser of which one subcommand may be left out: ``default`` is then put before the arguments."""

    default = ""
    subcommands: frozenset[str] = frozenset()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.default and args is not None and not {*args[:1]} & (self.subcommands | {"-h", "--help"}):
            args = [self.default, *args]
        return super().parse_known_args(args, namespace)


def group(name: str, help: str, *rows: Command, default: str = "") -> Command:
    """Return a command that consists of subcommands. ``default`` is the one that is meant where none is named; the
    parser is then a CommandParser."""

    def arguments(parser: argparse.ArgumentParser) -> None:
        add(parser.add_subparsers(metavar="COMMAND", required=True), rows)
        if default:
            assert isinstance(parser, CommandParser)
            parser.default, parser.subcommands = default, frozenset(row.name for row in rows)

    return Command(name, help, arguments, lambda args: 2)


def json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def cache_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache-dir", type=Path, help="cache directory (default: AGENT_KERNEL_CACHE_DIR or the user's cache)"
    )


def data_argument(parser: argparse.ArgumentParser) -> None:
    what = "data directory (default: AGENT_KERNEL_DATA_DIR or the user's data directory)"
    parser.add_argument("--data-dir", type=Path, default=argparse.SUPPRESS, help=what)


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings from the environment, overridden by those of the command line. Raises InvalidRequest."""
    names = ("cache_dir", "data_dir", "sources", "namespace", "store", "limits", "ttl", "max_sessions")
    given: dict[str, Any] = {name: getattr(args, name, None) for name in names}
    return Settings.from_env(**given)


def assembly() -> Any:
    """Import the runtime late: its dependency jsonschema takes 1.3 s to import if its format checkers are installed."""
    return importlib.import_module("agent_kernel.turn.runtime")
