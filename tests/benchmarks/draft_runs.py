"""The notebook tasks as a person runs them: ``%%agent`` cells in drafts, in a real server, with the default model.

The person answers every question with yes. The namespace is judged in the kernel and in the draft: whichever holds what
was asked for is enough. Each figure carries the numbers that it draws in the metadata of its PNG.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.messages import Message
from tests.benchmarks import drawn
from tests.benchmarks.notebook_tasks import Found, Outcome, Task, wrong
from tests.notebook import notebook as notebooks
from tests.notebook.notebook import Notebook, Ran
from tests.server import AgentServer

CELL_S = 600.0
AT_ONCE = 4
ANSWERS = ("y",) * 8
MARK = "Drawn"
SETUP = """
import sys as _sys, types as _types
_drawn = _types.ModuleType("drawn")
exec({source!r}, _drawn.__dict__)
_drawn.carry({mark!r})
"""
JUDGED = """%agent in
_magic = get_ipython().magics_manager.registry["AgentMagics"]
_code = {code!r}
try:
    print("HOLDS" if bool(eval(_code)) else "NO")
except Exception as _problem:
    print("NO")
if _magic._drafts.done:
    _line = f"print('HOLDS' if bool({{_code}}) else 'NO')"
    print(_magic._drafts.run("judge", _line, lambda *_: None, lambda *_: None).outcome.text)
"""
"""A cell that begins with a magic of the agent leaves the draft alive."""


async def outcomes(server: AgentServer, tasks: Sequence[Task]) -> list[Outcome]:
    """In the order of ``tasks``; AT_ONCE of them run together, each in a kernel of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebooks, "CELL_S", CELL_S)
        free = asyncio.Semaphore(AT_ONCE)

        async def one(task: Task) -> Outcome:
            async with free:
                return await _outcome(server, task)

        return await asyncio.gather(*[one(task) for task in tasks])


async def _outcome(server: AgentServer, task: Task) -> Outcome:
    """One task in a fresh kernel and a fresh directory."""
    directory = task.name.replace(" ", "-")
    (server.root / directory).mkdir(parents=True, exist_ok=True)
    kernel = await server.start_kernel(f"{directory}/task.ipynb")
    async with Notebook(server, kernel) as notebook:
        await _plain_cell(notebook, SETUP.format(source=_source(), mark=MARK) if task.draws else "")
        await _plain_cell(notebook, task.setup)
        started, seen = time.monotonic(), 0
        turns: list[str] = []
        steps, first = 0, ""
        for prompt in task.prompts:
            ran = await notebook.run(f"%%agent\n{prompt}", ANSWERS)
            messages = [Message.from_json(body) for body in (await notebook.messages())[seen:]]
            seen += len(messages)
            codes = tuple(str(call.arguments.get("code")) for message in messages for call in message.calls)
            steps, first = steps + len(codes), first or next(iter(codes), "")
            answer = _answer(messages)
            turns.append(_told(prompt, messages, ran, answer))
        seconds = time.monotonic() - started
        holds = await _holds(notebook, task.holds) if task.holds else None
        draws = _draws(task.draws, _figures(ran)) if task.draws else None
        await notebook.shut_down()
    why = wrong(task, Found(answer, codes, holds, draws))
    print(f"{seconds:6.1f} s {task.name}: {why or 'right'}", file=sys.__stderr__, flush=True)
    return Outcome(
        task, why, seconds, steps=steps, chat_code=task.is_chat and bool(codes), first_code=first, turns=tuple(turns)
    )


async def _plain_cell(notebook: Notebook, code: str) -> None:
    if code:
        ran = await notebook.run(code)
        assert ran.status == "ok", ran.error


async def _holds(notebook: Notebook, expression: str) -> bool:
    """In the kernel or in the draft of the last turn; False where it raises."""
    return "HOLDS" in (await notebook.run(JUDGED.format(code=expression))).printed


def _draws(expression: str, figures: Sequence[Any]) -> bool:
    """The expression is written by the authors of the tasks, not by the model."""
    return any(bool(eval(expression, {"math": math, "figure": figure})) for figure in figures)


def _figures(ran: Ran) -> list[Any]:
    """What each picture of the cell carries in its metadata."""
    found = []
    for picture in ran.of("image/png"):
        data = base64.b64decode(picture)
        for kind, body in _chunks(data):
            name, _, text = body.partition(b"\0")
            if kind == b"tEXt" and name == MARK.encode():
                found.append(json.loads(text.decode("latin-1")))
    return found


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at + 8 <= len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        yield kind, png[at + 8 : at + 8 + size]
        at += 12 + size


def _answer(messages: Sequence[Message]) -> str:
    """What was said after the last call."""
    return next((message.text for message in reversed(messages) if message.role == "assistant"), "")


def _told(prompt: str, messages: Sequence[Message], ran: Ran, answer: str) -> str:
    lines = [f"> {prompt}"]
    for message in messages:
        if message.hidden:
            lines.append(f"note: {message.text}")
        lines += [f"code: {call.arguments.get('code')}" for call in message.calls]
        if message.role == "tool":
            lines.append(f"output ({message.status}): {message.text}")
    lines += [f"asked: {question}" for question in ran.asked]
    return "\n".join([*lines, f"answer: {answer}", ran.error]).rstrip()


def _source() -> str:
    return Path(drawn.__file__).read_text(encoding="utf-8")
