"""Runs the wordings of ``quickstart_wordings.json`` with the real agent, engine and protocol, and executes the code."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import Engine
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, Note, TurnRequest
from tests.benchmarks.notebook_process import NotebookProcess, NotebookPython

WORDINGS = Path(__file__).with_name("quickstart_wordings.json")


@dataclass(frozen=True)
class Outcome:
    turn: str
    prompt: str
    right: bool
    seconds: float
    answer: str
    codes: tuple[str, ...]


def wordings(path: Path = WORDINGS) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return body


class Conversation:
    """One session of an agent with a notebook. Each turn gets the notes that the magic would send."""

    def __init__(self, engine: Engine, notebook: NotebookProcess) -> None:
        self._notebook = notebook
        self._store = MemoryStore()
        self._key = SessionKey("local", new_id("wording"))
        self._agent = Agent(self._store, engine, self._key, [NotebookPython(notebook)])

    async def ask(self, prompt: str) -> tuple[str, list[Message]]:
        """Run one turn and return its answer and its messages."""
        said, facts = await self._notebook.notes(prompt)
        notes = (Note("Variables", facts),) if facts else ()
        before = len(await self._store.latest(self._key)) if await self._store.info(self._key) else 0
        result = await self._agent.run(TurnRequest(said, notes=notes, where="live", permission="auto"))
        if result.error is not None:
            raise result.error
        items = (await self._store.latest(self._key))[before:]
        return result.text, [item.message for item in items]


async def tried(engine: Engine, wording: Mapping[str, str], turns: Mapping[str, Mapping[str, str]]) -> Outcome:
    """Run one wording, after its earlier turn, in a fresh session and a fresh notebook. The answer must also contain
    the additional text ``says`` of the wording, if it has one.
    """
    turn = {**turns[wording["turn"]], **{key: wording[key] for key in ("says",) if key in wording}}
    async with NotebookProcess() as notebook:
        await notebook.cell(turn["cell"])
        conversation = Conversation(engine, notebook)
        await conversation.ask(wording["earlier"])
        notebook.figures.clear()
        started = time.monotonic()
        answer, messages = await conversation.ask(wording["prompt"])
        seconds = time.monotonic() - started
        right = await _right(turn, answer, notebook)
    codes = tuple(str(call.arguments.get("code")) for message in messages for call in message.calls)
    outputs = tuple(message.text for message in messages if message.role == "tool")
    return Outcome(
        wording["turn"],
        wording["prompt"],
        right,
        seconds,
        answer,
        tuple(map("\n-> ".join, zip(codes, outputs, strict=False))),
    )


async def in_order(engine: Engine, texts: Mapping[str, Any]) -> list[Outcome]:
    """Run the first wording of each turn, which is the one of the notebook, in one session and in the order of the
    notebook.
    """
    outcomes = []
    async with NotebookProcess() as notebook:
        await notebook.cell(texts["turns"]["load"]["cell"])
        conversation = Conversation(engine, notebook)
        for name in ("load", "question", "plot", "follow-up", "change"):
            prompt = next(wording["prompt"] for wording in texts["wordings"] if wording["turn"] == name)
            started = time.monotonic()
            answer, messages = await conversation.ask(prompt)
            right = await _right(texts["turns"][name], answer, notebook)
            codes = tuple(str(call.arguments.get("code")) for message in messages for call in message.calls)
            outcomes.append(Outcome(name, prompt, right, time.monotonic() - started, answer, codes))
    return outcomes


async def _right(turn: Mapping[str, str], answer: str, notebook: NotebookProcess) -> bool:
    if "says" in turn and not re.search(turn["says"], answer):
        return False
    if "draws" in turn:
        drawn = [sorted(series) for figure in notebook.figures for series in figure]
        wanted = f"any(len(s) == len(_w) and max(abs(a - b) for a, b in zip(s, _w)) < 0.01 for s in {drawn!r})"
        await notebook.cell(f"_w = sorted({turn['draws']})")
        return await notebook.holds(wanted)
    return await notebook.holds(turn["holds"]) if "holds" in turn else True


async def called(engine: Engine, prompt: str) -> bool:
    """Return True if a prompt that needs no code made the model run code, in a session with an earlier call."""
    async with NotebookProcess() as notebook:
        conversation = Conversation(engine, notebook)
        await conversation.ask("Compute 12 * 12.")
        _, messages = await conversation.ask(prompt)
    return any(message.calls for message in messages)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return one line for each wording. The code and the answer follow below the wordings that failed."""
    lines = []
    for item in outcomes:
        lines.append(f"{'right' if item.right else 'WRONG':5}  {item.seconds:5.1f} s  {item.turn:10} {item.prompt}")
        if not item.right:
            lines += ["    " + line for text in (*item.codes, item.answer) for line in text.splitlines()]
    return "\n".join([*lines, f"{sum(item.right for item in outcomes)} of {len(outcomes)} right"])
