"""Tests that the server runs the agent's code in real kernels, without a Jupyter server."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.multikernelmanager import AsyncMultiKernelManager

from agent_kernel.core.events import CallOutput, EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.session import SessionKey
from jupyter_ext.notebooks.attached_notebook import LiveKernel, inspection_expression
from jupyter_ext.notebooks.kernel_jobs import KernelJobs
from tests.waiting import until

PATIENCE_S = 60.0


@dataclass
class Desk:
    """One kernel, and the ways to run code in it."""

    manager: Any
    kernel: str
    jobs: KernelJobs
    said: list[EventBody] = field(default_factory=list)

    def context(self, tool: str = "python", /, **arguments: Any) -> ToolContext:
        return ToolContext(SessionKey("local", "s"), "turn", 1, ToolCall("c1", tool, arguments), self.said.append)

    async def run(self, code: str) -> ToolOutput:
        return await asyncio.wait_for(self.jobs.run(self.kernel, code, self.context()), PATIENCE_S)

    async def look(self, **arguments: Any) -> ToolOutput:
        context = self.context("running", **arguments)
        return await asyncio.wait_for(self.jobs.inspect(self.kernel, context), PATIENCE_S)

    async def until_idle(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.jobs.busy_reason(self.kernel):
                await asyncio.sleep(0.1)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition, PATIENCE_S)

    @property
    def printed(self) -> str:
        return "".join(body.text for body in self.said if isinstance(body, CallOutput))

    @asynccontextmanager
    async def person(self, code: str) -> AsyncIterator[Any]:
        """Execute the code in the kernel as another front end does."""
        client = self.manager.get_kernel(self.kernel).client()
        client.session.session = "another one"
        client.start_channels(hb=False)
        try:
            await client.wait_for_ready(timeout=PATIENCE_S)
            client.execute(code)
            async with asyncio.timeout(PATIENCE_S):
                while not await self.jobs.busy_reason(self.kernel):
                    await asyncio.sleep(0.02)
            yield client
        finally:
            client.stop_channels()


@asynccontextmanager
async def start_kernel(handed_over_s: float = 60.0) -> AsyncIterator[Desk]:
    manager: Any = AsyncMultiKernelManager()  # its methods are typed as those of the blocking one
    kernel = await manager.start_kernel()
    desk = Desk(manager, kernel, jobs := KernelJobs(manager.get_kernel, handed_over_s=handed_over_s))
    try:
        yield desk
    finally:
        await jobs.aclose()
        await manager.shutdown_all(now=True)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with start_kernel() as desk:
        yield desk


async def test_code_runs_in_the_kernel_and_what_it_says_comes_while_it_runs_and_at_its_end(desk: Desk) -> None:
    first = await desk.run("import sys\nx = 41\nprint('hello', flush=True)\nprint('oh', file=sys.stderr)\nx + 1")
    assert (first.status, first.text) == ("success", "hello\noh\n42")
    assert desk.printed == "hello\noh\n42\n"
    assert (await desk.run("x")).text == "41", "the variables are the kernel's"
    assert (await desk.run("await __import__('asyncio').sleep(0)\n'awaited'")).text == "'awaited'"
    failed = await desk.run("{}['gone']")
    assert failed.status == "error"
    assert failed.text.endswith("KeyError: 'gone'")
    assert "\x1b" not in failed.text
    assert (await desk.run("input()")).status == "error", "nobody can type there"


async def test_pictures_come_as_media(desk: Desk) -> None:
    ran = await desk.run("import matplotlib.pyplot as plt\n%matplotlib inline\nplt.plot([1, 2]);")
    assert [media.mime for media in ran.media] == ["image/png"]
    assert (ran.media[0].data or b"").startswith(b"\x89PNG")
    assert "[1 figure(s) shown]" in ran.text


async def test_ten_megabytes_of_output_end_as_head_and_tail(desk: Desk) -> None:
    ran = await desk.run("for n in range(100_000): print(f'{n:>99}')")
    assert ran.status == "success"
    assert len(ran.text) < 5_000
    assert ran.text.rstrip().endswith("99999")
    assert len(desk.printed) <= 100_000
    assert (await desk.run("'still here'")).text == "'still here'"


def wait_for(file: Path) -> str:
    """Return code that runs until the file exists."""
    return f"import pathlib, time\nwhile not pathlib.Path({str(file)!r}).exists(): time.sleep(0.05)"


async def test_a_job_goes_on_by_itself_is_looked_at_waited_for_and_blocks_no_other_answer(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with start_kernel(handed_over_s=1.0) as desk:
        handed = await desk.run(f"print('begun', flush=True)\n{wait_for(go)}\nprint('over')\n7")
        assert handed.status == "success"
        assert "job j1 (still running after" in handed.text
        assert "begun" in handed.text
        assert handed.details["job"] == "j1"
        second = await desk.run("1")
        assert second.status == "error"
        assert "busy with job j1" in second.text
        assert "still running" in (await desk.look()).text
        go.touch()
        waited = await desk.look(job="j1", wait_s=PATIENCE_S)
        assert waited.status == "success"
        assert waited.text.endswith("begun\nover\n7")
        assert "There is no such job: job j1 (done" in (await desk.look(job="j9")).text


async def test_stop_interrupts_the_job_and_keeps_what_it_said() -> None:
    async with start_kernel(handed_over_s=1.0) as desk:
        await desk.run("import time\nprint('begun', flush=True)\ntime.sleep(600)")
        stopped = await desk.look(stop=True)
        assert stopped.status == "interrupted"
        assert "begun" in stopped.text
        assert (await desk.run("'goes on'")).text == "'goes on'"


async def test_a_turn_that_is_stopped_stops_the_code_it_waits_for(desk: Desk) -> None:
    turn = asyncio.create_task(desk.run("import time\nprint('begun', flush=True)\ntime.sleep(600)"))
    await desk.until(lambda: "begun" in desk.printed)
    turn.cancel()
    await asyncio.wait([turn])
    assert desk.jobs.jobs_of(desk.kernel)[0].status == "interrupted"
    assert (await desk.run("'idle again'")).text == "'idle again'"


async def test_nothing_queues_behind_a_persons_code_and_nothing_interrupts_it(desk: Desk, tmp_path: Path) -> None:
    await desk.run("ran = []")
    async with desk.person(f"{wait_for(tmp_path / 'go')}\nran.append('the person')"):
        refused = await desk.run("ran.append('the agent')")
        assert refused.status == "error"
        assert "busy with code that you did not start: import pathlib" in refused.text
        assert "There is no such job" in (await desk.look(job="j2", stop=True)).text
        variables = await LiveKernel(desk.jobs, desk.kernel).offer(desk.context("variables"))
        assert "busy" in variables.text
        (tmp_path / "go").touch()
        await desk.until_idle()
    assert (await desk.run("ran")).text == "['the person']"


async def test_a_stop_before_its_turn_in_the_shell_hits_the_job_and_not_what_runs_before_it(desk: Desk) -> None:
    await desk.run("ran = []")
    async with desk.person("import time\nfor _ in range(20): time.sleep(0.1)\nran.append('the person')"):
        # As when both are sent in the same moment: the shell was idle when it was asked.
        job = desk.jobs._start(desk.kernel, "import time\ntime.sleep(600)\nran.append('the agent')")
        await job.stop()
        await asyncio.wait_for(job.ended.wait(), PATIENCE_S)
    assert job.status == "interrupted"
    assert (await desk.run("ran")).text == "['the person']"


async def test_a_kernel_that_dies_ends_the_call_with_that_reason(desk: Desk) -> None:
    ran = await desk.run("import os\nos.kill(os.getpid(), 9)")
    assert ran.status == "interrupted"
    assert "the kernel died" in ran.text


async def test_a_restarted_kernel_ends_the_jobs_of_its_earlier_life_and_runs_new_ones() -> None:
    async with start_kernel(handed_over_s=0.3) as desk:
        await desk.run("import time\nold = 1\ntime.sleep(600)")
        desk.jobs.on_life_end(desk.kernel, "the kernel was restarted")
        await desk.manager.get_kernel(desk.kernel).restart_kernel(now=True)
        assert "(the kernel was restarted, " in (await desk.look()).text
        await desk.until_idle()
        assert (await desk.run("'old' in globals()")).text == "False"


async def test_a_kernel_that_is_gone_is_told(desk: Desk) -> None:
    output = await desk.jobs.run("no such kernel", "1", desk.context())
    assert (output.status, output.text) == ("error", "The kernel of this notebook is gone.")


async def test_a_kernel_is_looked_into_without_a_trace_and_without_our_package(desk: Desk) -> None:
    assert (
        "agent_kernel"
        not in (await desk.run("import sys\n' '.join(name for name in sys.modules if 'agent' in name)")).text
    )
    side = LiveKernel(desk.jobs, desk.kernel)
    await desk.run("rate = 0.5\nbefore = set(globals())\nexec = None")
    listed = await side.offer(desk.context("variables"))
    assert listed.text.endswith("rate: float = 0.5\nmodules: sys")
    assert (await side.offer(desk.context("variables", name="rate"))).text == "rate: float = 0.5"
    assert (await desk.run("set(globals()) - before - {'exec'}")).text == "{'before'}"
    await desk.run("1/0")
    failed = await side.offer(desk.context("last_error"))
    assert "ZeroDivisionError" in failed.text
    assert "ran yet" in (await side.offer(desk.context("executions"))).text, "what the agent ran is no cell"


async def test_a_run_tells_which_variables_it_made_or_changed(desk: Desk) -> None:
    await desk.run("kept, book, plain = [1], {}, 5")
    side = LiveKernel(desk.jobs, desk.kernel)
    ran = await side.offer(
        desk.context("python", code="import math\nfresh = 7\nbook['a'] = kept\nplain += 1\n_own = 1")
    )
    assert (ran.status, sorted(ran.details["variables"])) == ("success", ["book", "fresh", "plain"])
    assert "variables" not in (await side.offer(desk.context("python", code="print(kept)"))).details
    names = "id = str = len = type = list = dict = set = name = value = shell = get_ipython = 5"
    assert "len" in (await side.offer(desk.context("python", code=names))).details["variables"]
    shadowed = await side.offer(desk.context("python", code="fresh = 8"))
    assert shadowed.details["variables"] == ["fresh"], "they do not stand in the way of looking"
    assert (await desk.run("'_sizes' in globals() or 'json' in globals()")).text == "False"
    async with desk.person("import time\ntime.sleep(600)"):
        assert "busy" in (await side.offer(desk.context("python", code="late = 1"))).text


async def test_the_process_of_a_kernel_may_be_stopped_by_the_system_and_is_then_told_as_busy(desk: Desk) -> None:
    pid = int((await desk.run("import os\nos.getpid()")).text)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "busy" in (await desk.run("1")).text
    finally:
        os.kill(pid, signal.SIGCONT)


def test_what_is_sent_into_a_kernel_is_one_expression_that_imports_nothing_of_ours() -> None:
    tree = ast.parse(inspection_expression("variables", {"name": "it's"}), mode="eval")
    texts = [str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    [source] = [text for text in texts if "def " in text]
    imported = [node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in imported if module and module.startswith("agent_kernel")]
