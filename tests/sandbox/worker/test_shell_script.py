"""Tests shell scripts in the jail: how they end, what they leave behind, and that the session's Python is not
affected.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.processes import running
from tests.sandbox.conftest import Make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "one")


def shell(*lines: str, timeout_s: float = 30.0, cpu_s: float = 0.0) -> Work:
    return Work("\n".join(lines), "shell", timeout_s=timeout_s, cpu_s=cpu_s)


async def test_a_script_shares_files_with_python_and_nothing_else(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "open('a.txt', 'w').write('3')\nos.environ['MINE'] = 'x'\nos.chdir('/')\nx = 1")
    result = await sandbox.run(KEY, shell("cat a.txt", 'echo "[$MINE]"', "pwd", "echo 4 > b.txt", "export Y=1"))
    assert (result.status, result.exit_code) == ("success", 0)
    assert result.stdout.split() == ["3[]", str(sandbox.workdir(KEY))]
    assert (await sandbox.run(KEY, shell('echo "[$Y]"'))).stdout == "[]\n"
    assert (await sandbox.run(KEY, f"x, open('{sandbox.workdir(KEY)}/b.txt').read()")).value == "(1, '4\\n')"


async def test_a_script_ends_at_the_first_line_that_fails_with_its_exit_code(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, shell("echo one; echo bad >&2", "(exit 7)", "echo two"))
    assert (result.status, result.exit_code, result.stdout, result.stderr) == ("error", 7, "one\n", "bad\n")
    missing = await sandbox.run(KEY, shell("true", "no_such_program"))
    assert missing.exit_code == 127
    assert "2: no_such_program" in missing.stderr
    assert (await sandbox.run(KEY, shell("kill -9 $$"))).exit_code == 137
    assert (await sandbox.run(KEY, shell("if true; then"))).status == "error"


async def test_a_script_has_no_input_and_its_pipes_work(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, shell("cat", "yes | head -n 2", "cat <<END", "text", "END"))
    assert (result.exit_code, result.stdout) == (0, "y\ny\ntext\n")


async def test_output_of_a_script_arrives_while_it_runs(sandbox: LinuxSandbox) -> None:
    seen = asyncio.Event()
    run = asyncio.create_task(
        sandbox.run(KEY, shell("echo early", "sleep 30"), on_output=lambda stream, text: seen.set())
    )
    await asyncio.wait_for(seen.wait(), 20)
    assert not run.done()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert (await sandbox.run(KEY, "1 + 1")).lost == ""


@pytest.mark.parametrize("plans", [None, [IsolationPlan("none", False)]], ids=["best", "without namespaces"])
async def test_what_a_script_starts_ends_with_it_in_time_or_not(make: Make, plans: list[IsolationPlan] | None) -> None:
    sandbox = make(SandboxPolicy(warm=0, grace_s=1.5), plans=plans)
    marks = [f"{286400 + os.getpid()}.{number}" for number in range(3)]
    await sandbox.run(KEY, "x = 1")
    left = shell(f"sleep {marks[0]} &", f"(setsid sleep {marks[1]} &)", "sleep 0.2; echo started")
    assert (await sandbox.run(KEY, left)).stdout == "started\n"
    stubborn = shell("trap '' INT TERM", f"(setsid sleep {marks[2]} &)", "echo begun", "sleep 600", timeout_s=2)
    result = await sandbox.run(KEY, stubborn)
    assert (result.status, result.stdout, result.exit_code) == ("timeout", "begun\n", None)
    assert "time limit of 2 s" in str(result.error)
    assert not any(running("sleep", mark) for mark in marks)
    after = await sandbox.run(KEY, "x")
    assert (after.value, after.lost) == ("1", "")


async def test_a_script_that_uses_too_much_processor_time_is_ended(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, shell("while :; do :; done", cpu_s=1))
    assert (result.status, result.exit_code) == ("error", 128 + 24)


async def test_a_script_that_is_too_long_is_refused_with_the_reason(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, shell("echo " + "x" * 130_000))
    assert result.status == "error"
    assert "120,000 bytes" in str(result.error)
    assert (await sandbox.run(KEY, shell("echo fine"))).stdout == "fine\n"


async def test_a_child_of_python_is_left_alone_by_a_script(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "import subprocess\nchild = subprocess.Popen(['sleep', '60'])")
    await sandbox.run(KEY, shell("sleep 0.1 &", "true"))
    assert (await sandbox.run(KEY, "child.poll()\nchild.poll() is None")).value == "True"


async def test_a_script_that_nobody_inside_may_end_takes_the_whole_session_with_it(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, grace_s=1.0))
    await sandbox.run(KEY, "x = 1\ndef no(*a): raise PermissionError\nos.kill = os.killpg = no")
    mark = f"{386400 + os.getpid()}"
    result = await sandbox.run(KEY, shell("trap '' INT", "echo begun", f"sleep {mark}", timeout_s=2))
    assert (result.status, result.stdout) == ("timeout", "begun\n")
    assert "was ended" in str(result.error)
    assert not running("sleep", mark)
    assert (await sandbox.run(KEY, "'x' in globals()")).value == "False"
