"""The ``agent-kernel`` command.

Results go to stdout, everything else to stderr. Exit codes: 0 for success, 1 for a failure (with one line that states
the next step), 2 for wrong usage, 130 if interrupted. Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

from agent_kernel.cli.base.command import ABSENT, Command, CommandParser, add_commands
from agent_kernel.cli.base.word_wrap import print_message
from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.version import __version__

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "ask": "terminal.ask_command",
        "chat": "terminal.chat_command",
        "model": "models",
        "serve": "serve",
        "sessions": "sessions",
        "replay": "replay",
        "eval": "eval",
        "mcp": "mcp",
        "skills": "skills",
        "trust": "trust",
        "token": "token",
        "where": "where",
        "purge": "purge",
        "config": "doctor",
        "doctor": "doctor",
        "docs": "docs",
        "completion": "completion",
    }
)
"""Maps the name of each command, in the order of the help text, to the module of this package that defines it. The
module's ``Command`` object has the name of the command in capitals, such as ``SERVE``."""


def command_parser(names: Iterable[str] = tuple(COMMANDS)) -> CommandParser:
    """Return the parser of the commands with these names. Only their modules are imported, because importing those of
    all commands takes several times as long as a short command."""
    parser = CommandParser(prog="agent-kernel", description="A local-first agent runtime for Jupyter.")
    parser.add_argument("--version", action="version", version=f"agent-kernel {__version__}")
    add_commands(parser.add_subparsers(metavar="COMMAND", required=True), [_command(name) for name in names])
    return parser


def _command(name: str) -> Command:
    command: Command = getattr(import_module(f"agent_kernel.cli.{COMMANDS[name]}"), name.upper())
    return command


def main(argv: Sequence[str] | None = None) -> int:
    _prepare_streams()
    argv = sys.argv[1:] if argv is None else argv
    first = argv[0] if argv else ""
    try:  # this also covers an interrupt while the command's modules are imported
        parser = command_parser([first] if first in COMMANDS else () if first == "--version" else COMMANDS)
        if not argv:
            parser.print_help()
            return 0
        args, unknown = parser.parse_known_args(argv, argparse.Namespace(**ABSENT))
        if unknown:  # argparse would answer with the usage of the whole program
            words = all(not text.startswith("-") for text in unknown)
            advice = ". Put an argument that contains spaces into quotes." if words else ""
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{advice}")
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except AgentKernelError as error:
        print_message(f"agent-kernel: {error}")
        return 1
    except KeyboardInterrupt:
        print_message("agent-kernel: stopped. Run the same command again to continue.")
        return 130
    except BrokenPipeError:  # the program that reads the output has ended, as 'head' does
        _discard_output()
        return 1
    except OSError as error:  # such as a full disk; stdout may be a file on the same disk
        where = f"{error.filename}: " if error.filename else ""
        print_message(f"agent-kernel: {where}{error.strerror or error}.")
        _discard_output()
        return 1


def _prepare_streams() -> None:
    """Replace streams that the caller has closed. Avoid errors for input that is not UTF-8, and for output that a
    terminal cannot show."""
    for name, mode, errors in (
        ("stdin", "r", "surrogateescape"),
        ("stdout", "w", "replace"),
        ("stderr", "w", "replace"),
    ):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _discard_output() -> None:
    """Send further output to the null device. If output cannot be written, for example because a pipe is closed, the
    interpreter would otherwise raise the same error again when it flushes the stream at exit."""
    with contextlib.suppress(OSError):  # stdout may have no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
