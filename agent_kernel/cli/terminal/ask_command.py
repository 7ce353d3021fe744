"""``agent-kernel ask``: answers one question in a terminal or a script, with the engine and the tools of the settings.

The answer goes to stdout, so that it can be piped; progress, code, notices and questions to the user go to stderr. Code
runs in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from contextlib import aclosing, nullcontext
from pathlib import Path

from agent_kernel.cli.base.command import DATA_DIR, JSON, Command, argument, import_runtime, settings_of
from agent_kernel.cli.base.output import printable
from agent_kernel.cli.base.store_access import LOCAL
from agent_kernel.cli.base.word_wrap import print_message
from agent_kernel.cli.terminal.call_approval import ALLOW, CallApproval, explain_missing_tools
from agent_kernel.cli.terminal.input_files import STDIN, file_argument, give_files, list_files_left_out
from agent_kernel.cli.terminal.line_reader import read_reply_beside_output
from agent_kernel.cli.terminal.output_files import make_writable_directory, save_files
from agent_kernel.cli.terminal.standard_input import (
    NO_DATA,
    PipedData,
    find_piped_data,
    read_stdin,
)
from agent_kernel.cli.terminal.terminal_answer import (
    EFFORT,
    MODEL,
    OUTPUT_DIR,
    SESSION,
    TerminalAnswer,
    show_turn,
)
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey, check_id, new_id
from agent_kernel.core.settings import Settings

ASK_ARGUMENTS = (
    argument("question", help="the question, in quotes; - reads it from standard input"),
    file_argument(
        "an input file for the question; may be repeated; - waits for standard input, which is otherwise used only if "
        "data arrive there at once"
    ),
    SESSION,
    OUTPUT_DIR,
    MODEL,
    EFFORT,
    ALLOW,
    JSON,
    DATA_DIR,
)


def ask(args: argparse.Namespace) -> int:
    """Ask the question and print the answer. Return 0 if the turn was committed, otherwise 1."""
    if args.question == STDIN and STDIN in args.files:
        raise InvalidRequest("The question and --file cannot both be -, because stdin can be read only once.")
    answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=args.json)
    try:
        question = sys.stdin.read() if args.question == STDIN else args.question
        if not question.strip():
            raise InvalidRequest("The question is empty.")
        if args.output_dir is not None:
            make_writable_directory(args.output_dir)  # an error stops the command before the turn starts
        settings = settings_of(args)
        if missing := explain_missing_tools(args.allow, settings):
            _say(missing)
        piped = _read_piped(args, settings.upload_mb << 20)
        with piped.body if piped else nullcontext():
            if not args.json and (left_out := list_files_left_out(question, args.files)):
                options = printable(" ".join(f"-f {shlex.quote(name)}" for name in left_out))
                _say(f"the agent sees only files that --file names. To send yours, add: {options}")
            return asyncio.run(_ask(args, settings, question, piped, answer))
    except KeyboardInterrupt:
        answer.stop()
        _say("The turn was stopped.")
        return 130


def _read_piped(args: argparse.Namespace, limit: int) -> PipedData | None:
    """Return the data of stdin if one of the files is -, or if the question comes from elsewhere and data arrive on
    stdin; then - is added to ``args.files``."""
    if STDIN in args.files:
        if sys.stdin.isatty():
            _say("reading standard input; end it with Ctrl-D.")
        return read_stdin(limit)
    has_data = args.question != STDIN and find_piped_data()
    if has_data is None:
        _say(NO_DATA)
    if not has_data:
        return None
    piped = read_stdin(limit)
    if not args.json:
        _say(f"standard input goes with the question as {piped.name}.")
    args.files = [*args.files, STDIN]
    return piped


def _say(text: str) -> None:
    print_message(f"agent-kernel: {text}")


async def _ask(
    args: argparse.Namespace, settings: Settings, question: str, piped: PipedData | None, answer: TerminalAnswer
) -> int:
    approval = CallApproval(args.allow, read_reply_beside_output if _has_user(piped) else None)
    async with aclosing(import_runtime().Runtime.build(settings)) as runtime:
        key = SessionKey(settings.namespace or LOCAL, check_id(args.session) if args.session else new_id("session"))
        inputs = await give_files(runtime, key, args.files, piped)
        turn = await show_turn(runtime, key, question, inputs, answer, args=args, approval=approval)
        saved: list[Path] = []
        try:
            if args.output_dir is not None:
                await save_files(runtime, key, answer, args.output_dir, saved)
        finally:  # the answer is shown, also if a file cannot be written
            if args.json:
                files = [str(path) for path in saved] or answer.file_names
                print(json.dumps(answer.to_json() | {"turn": turn, "session": key.id, "files": files}))
            else:
                answer.close(saved)
        return 0 if answer.state == "committed" else 1


def _has_user(piped: PipedData | None) -> bool:
    """Return whether a user at a terminal can be asked: stderr shows the question, and stdin is the terminal or was
    used for data."""
    return sys.stderr.isatty() and (sys.stdin.isatty() or piped is not None)


ASK = Command("ask", "answer one question and print the answer", ask, ASK_ARGUMENTS)
