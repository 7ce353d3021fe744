"""Runs the notebook tasks with smolagents' CodeAgent on our engine: same weights, decoder and chat template, greedy
decoding.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import Message, assistant, system, user
from agent_kernel.core.protocols import EndChunk, Engine, EngineRequest, Sampling, TextChunk
from agent_kernel.evaluation.answer_check import Observation, reason_wrong
from agent_kernel.evaluation.task import Task
from agent_kernel.evaluation.task_result import TaskResult, TaskTurn
from tests.narrowing import not_none

PEER = Path(__file__).with_name("smolagents_peer.py")
MAX_STEPS = 6
"""Of smolagents' 20: what is not right after six steps on a small model was not seen to become right, and twenty take
hours."""
MAX_TOKENS = 512
"""Per completion; a step that rambles on ends here."""
SPEAKERS = {"system": system, "user": user, "assistant": assistant}


async def outcomes(
    engine: Engine, python: str, tasks: Sequence[Task], at_once: int = 6, tags: str = ""
) -> list[TaskResult]:
    """Run the tasks with smolagents and return the results.

    ``python`` is an interpreter with smolagents. ``tags`` sets its ``code_block_tags``; empty keeps its default. A chat
    task may contain code in its answer, because this agent can answer only by code.
    """
    free = asyncio.Semaphore(at_once)

    async def one(task: Task) -> TaskResult:
        async with free:
            result = await outcome(engine, python, task, tags)
        print(f"{result.seconds:6.0f} s {task.name}: {result.wrong or 'right'}", file=sys.__stderr__, flush=True)
        return result

    return await asyncio.gather(*[one(task) for task in tasks])


async def outcome(engine: Engine, python: str, task: Task, tags: str = "") -> TaskResult:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        body = await _conversation(engine, python, Path(folder), task, tags)
    seconds = time.monotonic() - started
    if "failed" in body:
        why = f"the agent failed: {body['failed']}"
        return TaskResult(task.name, task.kind, task.held_out, why, seconds, broken=True)
    why = reason_wrong(task, Observation(body["answers"][-1], (), body["holds"], body["draws"]), code_is_chat=True)
    read, written = body["tokens"]
    turns = [TaskTurn(*said) for said in zip(body["turns"], body["answers"], strict=True)]
    turns[-1] = replace(turns[-1], usage={"prompt_tokens": read, "completion_tokens": written})
    return TaskResult(task.name, task.kind, task.held_out, why, seconds, turns=tuple(turns))


async def _conversation(engine: Engine, python: str, folder: Path, task: Task, tags: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        python,
        str(PEER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        limit=2**26,
    )
    assert process.stdin is not None
    errors = asyncio.create_task(not_none(process.stderr).read())
    facts = {"setup": task.setup, "prompts": task.prompts, "holds": task.holds, "draws": task.draws}
    line: Mapping[str, Any] = {**facts, "max_steps": MAX_STEPS, "tags": tags}
    try:
        while True:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            said = await not_none(process.stdout).readline()
            if not said:
                return {"failed": (await errors).decode(errors="replace").strip()[-500:] or "no answer"}
            body: dict[str, Any] = json.loads(said)
            if "answers" in body:
                return body
            line = await _completion(engine, body)
    finally:
        process.stdin.close()
        await process.wait()
        await errors


async def _completion(engine: Engine, body: Mapping[str, Any]) -> dict[str, Any]:
    messages: list[Message] = [SPEAKERS[item["role"]](item["content"]) for item in body["messages"]]
    sampling = Sampling(temperature=0.0, max_tokens=MAX_TOKENS, stop=tuple(body["stop"]))
    text, usage = "", None
    async with aclosing(engine.stream(EngineRequest(tuple(messages), sampling=sampling))) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                text += chunk.text
            elif isinstance(chunk, EndChunk):
                usage = chunk.usage
    assert usage is not None
    return {"text": text, "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
