"""Describes a command by its name, its help, its arguments, and the function that runs it; builds argparse parsers from
such descriptions."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Settings

Run: TypeAlias = Callable[[argparse.Namespace], int]
Argument: TypeAlias = Callable[[Any], object]
"""A function that adds one or more arguments to an argparse parser, or to a group of a parser."""


def argument(*names: str, **options: Any) -> Argument:
    """Return an Argument for one option or positional argument. The parameters are those of argparse's
    ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **options)


def exclusive(*arguments: Argument, required: bool = False) -> Argument:
    """Return an Argument for several arguments of which a user may give only one. If ``required``, the user must give
    one of them."""

    def add_group(parser: Any) -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for add in arguments:
            add(group)

    return add_group


# A command and its subcommand may both take these three. An argument that was not given therefore sets no value in the
# namespace of the subcommand, which would replace the value of the command; ``ABSENT`` has the values for that case.
ABSENT = {"json": False, "namespace": None, "data_dir": None}
JSON = argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON instead of text")
DATA_DIR = argument(
    "--data-dir",
    type=Path,
    default=argparse.SUPPRESS,
    help="data directory (default: AGENT_KERNEL_DATA_DIR or the user's data directory)",
)
CACHE_DIR = argument(
    "--cache-dir", type=Path, help="cache directory (default: AGENT_KERNEL_CACHE_DIR or the user's cache)"
)
YES = argument("--yes", action="store_true", help="do not ask for confirmation")


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``run`` gets the parsed arguments and returns the exit status. ``arguments`` are in the order of the
    help text."""

    name: str
    help: str
    run: Run
    arguments: Sequence[Argument] = ()


def add_commands(commands: Any, rows: Sequence[Command]) -> None:
    """Add a parser for each command in ``rows`` to ``commands``, the result of argparse's ``add_subparsers``."""
    for row in rows:
        parser = commands.add_parser(row.name, help=row.help, description=row.help)
        parser.set_defaults(run=row.run, parser=parser)
        for add in row.arguments:
            add(parser)


class CommandParser(argparse.ArgumentParser):
    """An argparse parser. If the arguments begin with none of the names in ``subcommands``, the parser runs the
    subcommand ``default``."""

    default = ""
    subcommands: frozenset[str] = frozenset()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.default and args is not None and not {*args[:1]} & (self.subcommands | {"-h", "--help"}):
            args = [self.default, *args]
        return super().parse_known_args(args, namespace)


def group(name: str, help: str, *rows: Command, default: str = "") -> Command:
    """Return a command that consists of the subcommands ``rows``. ``default`` is the name of the subcommand that runs
    if the user names none. Without a default, the command alone prints its help to stderr, which lists the subcommands,
    and returns 2."""

    def add_rows(parser: Any) -> None:
        def print_help(args: argparse.Namespace) -> int:
            parser.print_help(sys.stderr)
            return 2

        add_commands(parser.add_subparsers(metavar="COMMAND"), rows)
        parser.set_defaults(run=print_help)
        if default:
            assert isinstance(parser, CommandParser)
            parser.default, parser.subcommands = default, frozenset(row.name for row in rows)

    return Command(name, help, lambda args: 2, (add_rows,))


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings from the environment variables. Settings on the command line override them. Raises
    InvalidRequest for an invalid setting, and if the path of the data directory is that of a file."""
    names = ("cache_dir", "data_dir", "sources", "namespace", "store", "limits", "ttl", "max_sessions")
    given: dict[str, Any] = {name: getattr(args, name, None) for name in names}
    settings = Settings.from_env(**given)
    if settings.data_dir.is_file():
        raise InvalidRequest(f"The data directory {settings.data_dir} is a file.", hint="Use another --data-dir.")
    return settings


def import_runtime() -> Any:
    """Import and return the module ``agent_kernel.turn.server_runtime``. Only commands that need it call this, because
    it depends on jsonschema, which takes 1.3 s to import if its format checkers are installed."""
    return importlib.import_module("agent_kernel.turn.server_runtime")
