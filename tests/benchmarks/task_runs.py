"""The notebook tasks through the product's own agent, engine, protocol and sandbox, several at once in one batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import Engine, Sandbox
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.code.python import SandboxPython
from agent_kernel.tools.code.sandbox_environment import SandboxEnvironment
from agent_kernel.turn.agent import Agent, Note, TurnRequest
from tests.benchmarks.notebook_tasks import Found, Outcome, Task, wrong
from tests.benchmarks.sandbox_notebook import SandboxNotebook

AT_ONCE = 4


async def outcomes(engine: Engine, sandbox: Sandbox, tasks: Sequence[Task], at_once: int = AT_ONCE) -> list[Outcome]:
    """In the order of ``tasks``; ``at_once`` of them run together."""
    free = asyncio.Semaphore(at_once)

    async def one(task: Task) -> Outcome:
        async with free:
            return await outcome(engine, sandbox, task)

    return await asyncio.gather(*[one(task) for task in tasks])


async def outcome(engine: Engine, sandbox: Sandbox, task: Task) -> Outcome:
    """One task in a fresh session and a fresh namespace. Raises what the engine raises: that is no wrong answer."""
    key = SessionKey("local", new_id("task"))
    notebook = SandboxNotebook(sandbox, key)
    store = MemoryStore()
    agent = Agent(store, engine, key, [SandboxPython(SandboxEnvironment(sandbox))])
    await notebook.prepare(task.setup, figures=bool(task.draws))
    started = time.monotonic()
    prompt_tokens = completion_tokens = steps = seen = 0
    told: list[str] = []
    for prompt in task.prompts:
        if task.draws:
            await notebook.forget_figures()
        said, facts = await notebook.notes(prompt)
        result = await agent.run(TurnRequest(said, notes=(Note("Variables", facts),) if facts else ()))
        if result.error is not None:
            raise result.error
        messages = [item.message for item in await store.latest(key)][seen:]
        seen += len(messages)
        prompt_tokens += result.usage.prompt_tokens
        completion_tokens += result.usage.completion_tokens
        codes = tuple(str(call.arguments.get("code")) for message in messages for call in message.calls)
        steps += len(codes)
        answer = result.text
        told.append(_told(prompt, messages, answer))
    seconds = time.monotonic() - started
    holds = await notebook.holds(task.holds) if task.holds else None
    draws = await notebook.draws(task.draws) if task.draws else None
    await notebook.close()
    why = wrong(task, Found(answer, codes, holds, draws))
    chat_code = task.is_chat and bool(codes)
    return Outcome(task, why, seconds, prompt_tokens, completion_tokens, steps, chat_code, tuple(told))


def _told(prompt: str, messages: Sequence[Message], answer: str) -> str:
    lines = [f"> {prompt}"]
    for message in messages:
        lines += [f"code: {call.arguments.get('code')}" for call in message.calls]
        if message.role == "tool":
            lines.append(f"output: {message.text}")
    return "\n".join([*lines, f"answer: {answer}"])
