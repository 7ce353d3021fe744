from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import RunResult, ToolContext
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.tools.code.sandbox_environment import SandboxEnvironment
from agent_kernel.tools.code.shell import SandboxShell, ShellTools
from tests.tools.sandbox_stand_in import RanSandbox
from tests.turns import KEY

DONE = RunResult("success", "hi\n", exit_code=0, seconds=0.5)


async def call(result: RunResult, **arguments: Any) -> tuple[str, dict[str, Any], RanSandbox]:
    sandbox = RanSandbox(result)
    given = {"commands": ["echo hi", "true"], **arguments}
    context = ToolContext(KEY, "t", 1, ToolCall("c", "shell", given), lambda body: None)
    output = await SandboxShell(SandboxEnvironment(sandbox), 10.0).call(given, context)
    return output.text, dict(output.details), sandbox


async def test_the_commands_are_the_lines_of_one_script_and_the_facts_are_for_programs() -> None:
    text, details, sandbox = await call(DONE)
    assert text == "hi"
    assert (sandbox.works[0].code, sandbox.works[0].kind) == ("echo hi\ntrue", "shell")
    assert details == {
        "status": "success", "commands": ["echo hi", "true"], "stdout": "hi\n", "stderr": "", "exit_code": 0,
        "timed_out": False, "working_directory": "/nowhere", "seconds": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(("asked", "given"), [(None, 10.0), (500, 0.5), (3_600_000, 10.0)])
async def test_a_call_may_ask_for_less_time_than_the_setting_never_for_more(asked: int | None, given: float) -> None:
    _, _, sandbox = await call(DONE, **({"timeout_ms": asked} if asked else {}))
    assert sandbox.works[0].timeout_s == given


async def test_a_line_that_fails_is_told_with_its_exit_code() -> None:
    text, details, _ = await call(replace(DONE, status="error", stderr="sh: 2: oops: not found\n", exit_code=127))
    assert text.splitlines() == [
        "hi", "[stderr]", "sh: 2: oops: not found", "[exit code 127: it ended at the first line that failed]",
    ]  # fmt: skip
    assert details["exit_code"] == 127


async def test_what_was_printed_before_the_time_was_up_is_kept() -> None:
    text, details, _ = await call(replace(DONE, status="timeout", exit_code=None, error="Stopped: ..."))
    assert text == "hi\n[stopped after 10 s; what it printed is above]"
    assert (details["timed_out"], details["exit_code"]) == (True, None)


async def test_each_stream_keeps_its_head_and_tail_and_says_what_is_missing() -> None:
    long = RunResult("success", "first" + "o" * 90_000 + "last", "FIRST" + "e" * 90_000 + "LAST", exit_code=0)
    text, details, _ = await call(long)
    assert len(text) < 6_000
    for word in ("first", "last", "FIRST", "LAST", "characters left out"):
        assert word in text
    assert len(details["stdout"]) < 20_100
    _, details, _ = await call(long, max_output_length=100)
    assert len(details["stdout"]) < 160
    assert details["stderr"].startswith("FIRST")
    assert details["stderr"].endswith("LAST")


async def test_a_request_that_wants_no_shell_gets_none() -> None:
    source = ShellTools(SandboxEnvironment(RanSandbox(DONE)), 10.0)
    wanted = await source.offer(ToolSourceContext(KEY, TurnRequest("hi"), lambda body: None, Path("/notebooks")))
    unwanted = await source.offer(ToolSourceContext(KEY, TurnRequest("hi", tools=("python",)), lambda body: None))
    assert [tool.spec.kind for tool in wanted.tools] == ["shell"]
    assert unwanted.tools == ()
