import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.events import Body, CallOutput, StateLost
from agent_kernel.messages import Media, ToolCall
from agent_kernel.protocols import RunResult, ToolContext, ToolOutput, Work
from agent_kernel.sessions.model import SessionKey
from agent_kernel.tools.offers import Offers
from agent_kernel.tools.python import LivePython, SandboxPython, told
from tests.turns import KEY

CALL = ToolCall("c1", "python", {"code": "print(1)"})


class Shell:
    """A sandbox that has already run everything."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        self.read: Sequence[Path] = ()

    async def run(
        self,
        session: SessionKey,
        work: Work | str,
        *,
        on_output: Callable[[str, str], None] = lambda stream, text: None,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> RunResult:
        self.read = read
        on_output("stdout", self.result.stdout)
        return self.result

    async def reset(self, session: SessionKey) -> None: ...

    def workdir(self, session: SessionKey) -> Path:
        return Path("/nowhere")

    async def report(self) -> Mapping[str, Any]:
        return {}

    async def close(self, session: SessionKey, *, remove: bool = False) -> None: ...

    async def aclose(self) -> None: ...


async def test_sandboxed_output_is_announced_while_it_comes_and_told_at_the_end() -> None:
    events: list[Body] = []
    shell = Shell(RunResult("success", "1\n", value="2"))
    tool = SandboxPython(shell, [Path("/notebooks")])
    output = await tool.call(CALL.arguments, ToolContext(KEY, "t", 1, CALL, events.append))
    assert output == ToolOutput("1\n2")
    assert events == [CallOutput("c1", "1\n")]
    assert shell.read == (Path("/notebooks"),)


async def test_lost_variables_are_told_to_the_person_and_the_model() -> None:
    events: list[Body] = []
    tool = SandboxPython(Shell(RunResult("success", "1\n", lost="the worker was restarted")))
    output = await tool.call(CALL.arguments, ToolContext(KEY, "t", 1, CALL, events.append))
    assert StateLost("the worker was restarted") in events
    assert output.text.startswith("(the worker was restarted)")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (RunResult("success"), "(no output)"),
        (RunResult("success", media=(Media.of("image/png", b"x"),)), "[1 figure(s) shown]"),
        (RunResult("error", "before\n", error="ValueError: x"), "before\nValueError: x"),
    ],
)
def test_the_model_is_never_told_nothing(result: RunResult, text: str) -> None:
    assert told(result) == text


async def test_live_code_waits_for_a_client_of_the_notebook() -> None:
    offers = Offers()
    running = asyncio.create_task(
        LivePython(offers).call(CALL.arguments, ToolContext(KEY, "t", 1, CALL, lambda b: None))
    )
    await asyncio.sleep(0)
    token, _ = offers.claim("t", "c1", "magic")
    offers.finish("t", "c1", token, ToolOutput("1"))
    assert (await running).text == "1"
