"""Helpers of these tests: an agent whose model plays a script, and short descriptions of a session's items."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from agent_kernel.sessions.adapters.openai_agents import AgentsSession

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["run", "streamed"])
"""Of every run."""
THREE: list[Any] = [
    {"role": role, "content": f"{what} {n}"}
    for n in (1, 2, 3)
    for role, what in (("user", "Message"), ("assistant", "Response"))
]


@function_tool
def tool() -> str:
    return "42"


@function_tool(needs_approval=True)
def guarded() -> str:
    return "done"


def one(role: str, text: str) -> Any:
    return {"role": role, "content": text}


def said(*texts: str) -> list[list[Any]]:
    """Return a script with one model call for each text."""
    return [[assistant_message(text, item_id=f"msg-{text}")] for text in texts]


def calling(name: str, call_id: str) -> list[Any]:
    return [function_call(name, "{}", call_id=call_id, item_id=f"fc-{call_id}")]


def agent(*steps: Any, **options: Any) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel(steps)
    return Agent(name="test", model=model, **options), model


async def run(streamed: bool, agent: Agent[Any], *given: Any, **options: Any) -> Any:
    """Run the agent to its end with ``Runner.run`` or ``Runner.run_streamed``, and return the result."""
    if not streamed:
        return await Runner.run(agent, *given, **options)
    result = Runner.run_streamed(agent, *given, **options)
    async for _ in result.stream_events():
        pass
    return result


def short(items: list[Any]) -> list[str]:
    """Describe items as ``user hello``, ``assistant hi``, ``call c1``, ``output c1``."""
    return [_short(item) for item in items]


async def stored(session: AgentsSession) -> list[str]:
    return short(await session.get_items())


def _short(item: dict[str, Any]) -> str:
    kind = item.get("type", "message")
    if kind == "function_call":
        return f"call {item['call_id']}"
    if kind == "function_call_output":
        return f"output {item['call_id']}"
    if kind != "message":
        return str(kind)
    content = item["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return f"{item['role']} {text}"
