"""``agent-kernel replay NAME.agent.json``: checks the answers of a recorded conversation. It asks the model again, runs
the code again, or only compares the numbers of each answer with the recorded outputs."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from agent_kernel.cli.base.command import DATA_DIR, JSON, Command, argument, settings_of
from agent_kernel.cli.base.output import Column, printable, show
from agent_kernel.cli.export_import import read_document
from agent_kernel.cli.replaying.notebook_code import NotebookCode
from agent_kernel.cli.replaying.recorded_turn import RecordedTurn, parse_turns
from agent_kernel.cli.replaying.verdict import ReplayedTurn, ReplayVerdict, verdict
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export.transcript import parse

SUFFIX = ".agent.json"
SHOWN = 48
"""Maximum number of characters of a prompt in a table."""
NOTHING_RAN = "Only the record was read. --live runs its code again in the sandbox, --verify asks the model again."
TABLE = {
    "number": Column("TURN", right=True),
    "prompt": Column("ASKED", lambda text: text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."),
    "result": Column("RESULT"),
    "notes": Column(""),
}


def replay(args: argparse.Namespace) -> int:
    """Print a verdict for each turn. Return 0 if all checked answers are the same or differ only in their wording, and
    1 if numbers differ or code fails."""
    path = args.file.with_suffix(SUFFIX) if args.file.suffix == ".ipynb" else args.file
    document = _document(path)
    turns = parse_turns(document)
    only = _turn(turns, args.turn) if args.turn else ""
    if not turns:
        raise InvalidRequest(f"{path.name} contains no answered turn.")
    verdicts = asyncio.run(_verdicts(args, document, turns, only, path))
    if args.json:
        model = (args.against or "configured") if _model(args) else "recorded"
        body = {"file": str(path), "model": model, "tools": "live" if args.live else "recorded"}
        print(json.dumps({**body, "turns": [verdict.to_json() for verdict in verdicts]}, indent=2, ensure_ascii=False))
    else:
        rows = [
            {**verdict.to_json(), "prompt": " ".join(verdict.prompt.split()), "notes": notes(verdict)}
            for verdict in verdicts
        ]
        show(rows, TABLE, as_json=False)
        if not (_model(args) or args.live):
            print(NOTHING_RAN, file=sys.stderr)
    return 1 if any(verdict.failed for verdict in verdicts) else 0


def notes(verdict: ReplayVerdict) -> str:
    """Return the notes that the table shows beside the result of a turn."""
    parts = [verdict.why] if verdict.why else []
    if verdict.files:
        parts.append(f"missing files: {', '.join(verdict.files)}")
    if verdict.numbers:
        now = f", now {', '.join(verdict.instead)}" if verdict.instead else ""
        parts.append(f"no longer hold: {', '.join(verdict.numbers)}{now}")
    if verdict.outputs:
        parts.append(f"{verdict.outputs} output(s) differ")
    if verdict.open:
        parts.append(f"not computed: {', '.join(verdict.open)}")
    return "; ".join(parts)


async def _verdicts(
    args: argparse.Namespace, document: Transcript, turns: list[RecordedTurn], only: str, path: Path
) -> list[ReplayVerdict]:
    if not (_model(args) or args.live):
        return [
            verdict(turn, ReplayedTurn(turn.messages, turn.earlier), model=False, tools=False)
            for turn in turns
            if only in ("", turn.turn.id)
        ]

    def progress(turn: RecordedTurn) -> None:
        prompt = printable(" ".join(turn.prompt.split())[:SHOWN])
        print(f"turn {turn.number} of {len(turns)}: {prompt}", file=sys.stderr, flush=True)

    settings = replace(settings_of(args), store="memory", observers="", transcripts="off", titles="off")
    cells = NotebookCode.read(path.with_name(path.name.removesuffix(SUFFIX) + ".ipynb"))
    runtime = importlib.import_module("agent_kernel.cli.replay_runtime")
    ask = args.against if _model(args) else None
    async with runtime.open_parts(settings, document, ask=ask, live=args.live, cells=cells) as parts:
        return [verdict async for verdict in runtime.Replay(turns, *parts).verdicts(only, progress)]


def _model(args: argparse.Namespace) -> bool:
    return bool(args.verify or args.against)


def _document(path: Path) -> Transcript:
    try:
        body, files = read_document(path)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    return parse(body).with_files(files)


def _turn(turns: list[RecordedTurn], reference: str) -> str:
    """Return the id of the turn that ``reference`` identifies by id or number. Raises InvalidRequest."""
    for turn in turns:
        if reference in (turn.turn.id, str(turn.number)):
            return turn.turn.id
    raise InvalidRequest(f"There is no turn {reference[:80]!r}; there are 1 to {len(turns)}.")


REPLAY_ARGUMENTS = (
    argument("file", type=Path, help="NAME.agent.json, or the notebook beside it"),
    argument(
        "--verify",
        action="store_true",
        help="ask the model again; without --live, tool results come from the record",
    ),
    argument("--live", action="store_true", help="run the recorded code again, in the sandbox"),
    argument("--turn", default="", help="only this turn: its number or id"),
    argument("--against", default="", metavar="MODEL", help="use this model instead of the configured one"),
    JSON,
    DATA_DIR,
)
REPLAY = Command("replay", "check whether the answers in NAME.agent.json are still right", replay, REPLAY_ARGUMENTS)
