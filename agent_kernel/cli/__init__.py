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
from collections.abc import Sequence

from agent_kernel.cli.base.command import ABSENT, CommandParser, add_commands
from agent_kernel.cli.completion import COMPLETION
from agent_kernel.cli.config import CONFIG
from agent_kernel.cli.doctor import DOCTOR
from agent_kernel.cli.eval import EVAL
from agent_kernel.cli.mcp import MCP
from agent_kernel.cli.models import MODEL
from agent_kernel.cli.purge import PURGE
from agent_kernel.cli.replay import REPLAY
from agent_kernel.cli.serve import SERVE
from agent_kernel.cli.sessions import SESSIONS
from agent_kernel.cli.skills import SKILLS
from agent_kernel.cli.terminal.ask_command import ASK
from agent_kernel.cli.terminal.chat_command import CHAT
from agent_kernel.cli.token import TOKEN
from agent_kernel.cli.trust import TRUST
from agent_kernel.cli.where import WHERE
from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.version import __version__

COMMANDS = (
    ASK,
    CHAT,
    MODEL,
    SERVE,
    SESSIONS,
    REPLAY,
    EVAL,
    MCP,
    SKILLS,
    TRUST,
    TOKEN,
    WHERE,
    PURGE,
    CONFIG,
    DOCTOR,
    COMPLETION,
)


def command_parser() -> CommandParser:
    parser = CommandParser(prog="agent-kernel", description="A local-first agent runtime for Jupyter.")
    parser.add_argument("--version", action="version", version=f"agent-kernel {__version__}")
    add_commands(parser.add_subparsers(metavar="COMMAND", required=True), COMMANDS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    _prepare_streams()
    parser = command_parser()
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        parser.print_help()
        return 0
    args = parser.parse_args(argv, argparse.Namespace(**ABSENT))
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except AgentKernelError as error:
        print(f"agent-kernel: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("agent-kernel: stopped. Run the same command again to continue.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the program that reads the output has ended, as 'head' does
        _discard_output()
        return 1
    except OSError as error:  # such as a full disk, on which the output may be as well
        where = f"{error.filename}: " if error.filename else ""
        print(f"agent-kernel: {where}{error.strerror or error}.", file=sys.stderr)
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
    """Let the interpreter end without another error for output that cannot be written."""
    with contextlib.suppress(OSError):  # stdout may have no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
