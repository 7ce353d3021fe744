"""Tests what the code of a session can do and see, through the interface of the sandbox."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from agent_kernel.core.errors import SandboxUnavailable
from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host import jail_factory
from agent_kernel.sandbox.host.policy import REQUIRED, SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail import jail
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.sandbox.conftest import Make, children
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "one")
TWO = SessionKey("local", "two")


async def test_variables_stay_from_run_to_run_and_the_last_expression_is_the_value(sandbox: LinuxSandbox) -> None:
    assert (await sandbox.run(KEY, "x = 41")).value is None
    assert (await sandbox.run(KEY, "x + 1")).value == "42"


async def test_sessions_do_not_share_variables(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "x = 1")
    assert (await sandbox.run(TWO, "'x' in globals()")).value == "False"


async def test_sessions_of_two_namespaces_with_one_id_have_two_work_directories(sandbox: LinuxSandbox) -> None:
    other = SessionKey("else", "one")
    assert sandbox.workdir(KEY) != sandbox.workdir(other)
    await sandbox.run(KEY, "open('f', 'w').write('1')")
    assert (await sandbox.run(other, "os.listdir('.')")).value == "[]"


async def test_files_written_stay_in_the_work_directory_after_the_session_is_closed(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "open('result.txt', 'w').write('done')")
    await sandbox.close(KEY)
    assert (sandbox.workdir(KEY) / "result.txt").read_text() == "done"
    assert sandbox.workdir(KEY).stat().st_mode & 0o777 == 0o700
    await sandbox.close(KEY, remove=True)
    assert not sandbox.workdir(KEY).exists()


async def test_a_new_server_finds_the_files_and_says_that_the_variables_are_gone(make: Make) -> None:
    first = make()
    await first.run(KEY, "x = 1; open('f', 'w').write('kept')")
    await first.aclose()
    result = await make().run(KEY, "open('f').read(), 'x' in globals()")
    assert result.value == "('kept', False)"
    assert "variables are gone" in result.lost


async def test_output_arrives_while_the_code_runs(sandbox: LinuxSandbox) -> None:
    seen = asyncio.Event()
    run = asyncio.create_task(
        sandbox.run(KEY, "import time\nprint('early')\ntime.sleep(30)", on_output=lambda stream, text: seen.set())
    )
    await asyncio.wait_for(seen.wait(), 20)
    assert not run.done()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_output_of_c_code_and_of_child_processes_is_heard(sandbox: LinuxSandbox) -> None:
    code = "import subprocess, sys\nos.write(1, b'c ')\nsubprocess.run(['sh', '-c', 'echo child; echo bad >&2'])"
    result = await sandbox.run(KEY, code)
    assert "c child" in result.stdout
    assert result.stderr == "bad\n"


async def test_a_directory_given_to_read_is_read_under_its_own_path(sandbox: LinuxSandbox, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "sub" / "b.csv").write_text("b\n2\n")
    (project / "a.csv").write_text("a\n1\n")
    (project / ".env").write_text("SECRET=1")
    code = f"pd.read_csv('{project}/a.csv').a.sum() + pd.read_csv('{project}/sub/b.csv').b.sum(), os.getcwd()"
    result = await sandbox.run(KEY, code, read=[project])
    assert (result.error, result.value) == (None, f"(3, '{sandbox.workdir(KEY)}')") or "np.int64(3)" in str(
        result.value
    )


async def test_files_that_appear_change_or_go_beside_the_notebook_are_followed(
    sandbox: LinuxSandbox, tmp_path: Path
) -> None:
    if not (await sandbox.report())["mounts"]["active"]:
        pytest.skip("without mounts the view is fixed when the worker starts")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "old.csv").write_text("old")
    look = f"sorted((n, open('{project}/' + n).read()) for n in os.listdir('{project}'))"
    assert (await sandbox.run(KEY, look, read=[project])).value == "[('old.csv', 'old')]"
    (project / "new.csv").write_text("new")
    (project / "draft").write_text("replaced")
    (project / "draft").replace(project / "old.csv")
    (project / ".env").write_text("SECRET")
    assert (await sandbox.run(KEY, look, read=[project])).value == "[('new.csv', 'new'), ('old.csv', 'replaced')]"
    (project / "new.csv").unlink()
    assert (await sandbox.run(KEY, look, read=[project])).value == "[('old.csv', 'replaced')]"


async def test_nothing_of_a_home_directory_is_shown(
    sandbox: LinuxSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    monkeypatch.setenv("HOME", str(home))
    for given in (home, tmp_path):
        result = await sandbox.run(SessionKey("local", str(given)), f"open('{home}/letter.txt').read()", read=[given])
        assert result.status == "error"
        assert "letter.txt" in str(result.error)


async def test_the_environment_has_no_variable_of_the_server(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "secret")
    assert (await make().run(KEY, "'MY_API_TOKEN' in os.environ")).value == "False"


async def test_a_run_over_its_time_limit_keeps_its_output_and_the_session(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "x = 5")
    result = await sandbox.run(KEY, Work("print('begun')\nwhile True: pass", timeout_s=4))
    assert (result.status, result.stdout) == ("timeout", "begun\n")
    assert "time limit of 4 s" in str(result.error)
    again = await sandbox.run(KEY, "x")
    assert (again.value, again.lost) == ("5", "")


async def test_code_that_ignores_the_interrupt_is_ended_and_the_next_run_says_so(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, grace_s=0.3))
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('mine')\nwhile True: pass"
    result = await sandbox.run(KEY, Work(stubborn, timeout_s=4))
    assert (result.status, result.stdout) == ("timeout", "mine\n")
    again = await sandbox.run(KEY, "1 + 1")
    assert again.value == "2"
    assert "did not react to an interrupt" in again.lost
    assert (await sandbox.run(KEY, "1")).lost == ""


async def test_cancelling_a_run_interrupts_the_code_at_once_and_keeps_the_session(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "n = 0")
    begun = asyncio.Event()
    code = "while True:\n    n += 1\n    if n == 1: print('begun')"
    run = asyncio.create_task(sandbox.run(KEY, code, on_output=lambda stream, text: begun.set()))
    await asyncio.wait_for(begun.wait(), 20)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, 20)
    after = await sandbox.run(KEY, "n > 0")
    assert (after.value, after.lost) == ("True", "")


async def test_a_run_cancelled_before_it_began_never_runs(sandbox: LinuxSandbox) -> None:
    run = asyncio.create_task(sandbox.run(KEY, "open('ran', 'w')"))
    await asyncio.sleep(0)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert (await sandbox.run(KEY, "os.path.exists('ran')")).value == "False"


async def test_an_interrupt_that_the_code_raises_itself_is_told_as_such(sandbox: LinuxSandbox) -> None:
    assert (await sandbox.run(KEY, "raise KeyboardInterrupt")).status == "interrupted"


async def test_waiting_processes_are_taken_and_replaced(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=2))
    before = children()
    await sandbox.warm()
    assert len(children() - before) == 2
    await sandbox.run(KEY, "1")
    await until(lambda: len(children() - before) >= 3, 20)
    assert len(children() - before) == 3


async def test_the_least_recently_used_session_makes_room_and_is_told(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, max_sessions=2))
    third = SessionKey("local", "three")
    await sandbox.run(KEY, "x = 1")
    await sandbox.run(TWO, "x = 2")
    await sandbox.run(KEY, "x")
    await sandbox.run(third, "x = 3")
    assert (await sandbox.run(KEY, "x")).value == "1"
    again = await sandbox.run(TWO, "'x' in globals()")
    assert again.value == "False"
    assert "needed for other sessions" in again.lost


async def test_an_unused_session_gives_its_process_up(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, idle_s=0.2))
    before = children()
    await sandbox.run(KEY, "x = 1")
    for _ in range(100):
        if not children() - before:
            break
        await asyncio.sleep(0.1)
    assert "not used for a long time" in (await sandbox.run(KEY, "1")).lost


async def test_runs_of_two_sessions_go_on_side_by_side(sandbox: LinuxSandbox) -> None:
    begun = asyncio.Event()
    endless = asyncio.create_task(
        sandbox.run(KEY, "print('begun')\nwhile True: pass", on_output=lambda stream, text: begun.set())
    )
    await asyncio.wait_for(begun.wait(), 20)
    assert (await sandbox.run(TWO, "1 + 1")).value == "2"
    assert not endless.done()
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)


async def test_closing_ends_runs_processes_tasks_and_threads(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=2))
    before, tasks, threads = children(), asyncio.all_tasks(), set(threading.enumerate())
    fds = len(os.listdir("/proc/self/fd"))
    await sandbox.warm()
    begun = asyncio.Event()
    run = asyncio.create_task(
        sandbox.run(KEY, "print('begun')\nwhile True: pass", on_output=lambda stream, text: begun.set())
    )
    await asyncio.wait_for(begun.wait(), 20)
    await sandbox.aclose()
    assert (await asyncio.wait_for(run, 20)).status == "interrupted"
    assert children() - before == set()
    assert asyncio.all_tasks() - tasks == set()
    assert {thread for thread in set(threading.enumerate()) - threads if "asyncio" not in thread.name} == set()
    assert len(os.listdir("/proc/self/fd")) <= fds
    with pytest.raises(SandboxUnavailable):
        await sandbox.run(KEY, "1")


async def test_the_report_says_of_each_layer_whether_it_is_required_and_in_force(sandbox: LinuxSandbox) -> None:
    report = await sandbox.report()
    assert {name for name, layer in report.items() if layer["required"]} == set(REQUIRED)
    assert all(report[name]["active"] for name in REQUIRED)
    assert all(set(layer) == {"required", "active", "detail"} for layer in report.values())


async def test_less_than_the_best_jail_can_be_told_from_the_report(make: Make) -> None:
    report = await make(plans=[IsolationPlan("none", False)]).report()
    assert not report["namespaces"]["active"]
    assert report["landlock"]["active"]


async def test_nothing_runs_when_a_required_layer_is_missing(make: Make, tmp_path: Path) -> None:
    sandbox = make(SandboxPolicy(warm=0, required=(*REQUIRED, "namespaces")), plans=[IsolationPlan("none", False)])
    with pytest.raises(SandboxUnavailable, match="namespaces"):
        await sandbox.run(KEY, "open('ran', 'w')")
    assert list((tmp_path / "work").iterdir()) == []
    assert not (await sandbox.report())["namespaces"]["active"]


async def test_another_system_is_refused_with_the_alternative(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail_factory, "missing_platform", lambda: "the sandbox needs Linux, this is darwin")
    sandbox = make()
    with pytest.raises(SandboxUnavailable) as refused:
        await sandbox.run(KEY, "1")
    assert "darwin" in refused.value.message
    assert "live" in refused.value.hint
    assert (await sandbox.report())["platform"] == {
        "required": True, "active": False, "detail": "the sandbox needs Linux, this is darwin",
    }  # fmt: skip


def test_the_platform_is_named_where_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert "win32" in jail.missing_platform()
