"""``agent-kernel completion``: prints a script for a shell, with which the shell completes commands and options."""

from __future__ import annotations

import argparse

from agent_kernel.cli.base.command import Command, argument

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def print_completion(args: argparse.Namespace) -> int:
    """Print the script and return the exit status. The script is generated from the parser of the whole command, so
    that it contains every option."""
    import shtab

    from agent_kernel.cli import command_parser

    print(shtab.complete(command_parser(), args.shell))
    return 0


COMPLETION = Command(
    "completion",
    'print a script for your shell: eval "$(agent-kernel completion bash)"',
    print_completion,
    (argument("shell", choices=SHELLS),),
)
