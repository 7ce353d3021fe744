"""Tests code that breaks things: the failure is reported, the session continues, and no process outlives it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from agent_kernel.core.errors import SandboxUnavailable
from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.processes import running, until_running
from tests.sandbox.conftest import Make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "one")
TWO = SessionKey("local", "two")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "was killed"),
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("os.closerange(0, 1000)", "exit code 120"),
        ("import time\nos.closerange(3, 1000)\ntime.sleep(30)", "closed its channel"),
    ],
)
async def test_a_process_that_ends_is_told_once_and_the_session_goes_on(
    sandbox: LinuxSandbox, code: str, why: str
) -> None:
    await sandbox.run(KEY, "x = 1")
    result = await sandbox.run(KEY, code)
    assert result.status == "error"
    assert why in str(result.error)
    again = await sandbox.run(KEY, "'x' in globals()")
    assert again.value == "False"
    assert why in again.lost
    assert (await sandbox.run(KEY, "1")).lost == ""


async def test_memory_beyond_the_limit_is_a_memory_error_and_the_session_goes_on(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, memory_mb=400))
    result = await sandbox.run(KEY, "b = bytearray(1 << 30)")
    assert "MemoryError" in str(result.error)
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


async def test_a_file_beyond_the_limit_is_an_error(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, file_mb=2))
    result = await sandbox.run(KEY, "open('big', 'wb').write(bytes(8 << 20))")
    assert "File too large" in str(result.error)
    assert (sandbox.workdir(KEY) / "big").stat().st_size <= 2 << 20


async def test_code_that_fills_the_disk_is_stopped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([1000, 1000] + [100] * 1000)
    monkeypatch.setattr("agent_kernel.sandbox.host.jailed_process._free_mb", lambda path: next(free))
    result = await make().run(KEY, "import time\nwhile True: time.sleep(0.1)")
    assert result.status == "error"
    assert "free on the disk" in str(result.error)


async def test_a_fork_bomb_hits_its_limit_and_the_session_goes_on(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, procs=20))
    if not (await sandbox.report())["uid"]["active"]:
        pytest.skip("processes of root are not limited")
    bomb = "import time\nn = 0\ntry:\n    while n < 5000:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n"
    bomb += "except BlockingIOError: pass\nn < 5000"
    assert (await sandbox.run(KEY, Work(bomb, timeout_s=50))).value == "True"
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


async def test_a_child_that_the_code_forks_does_not_speak_for_the_worker(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "pid = os.fork()\nprint('child' if pid == 0 else 'parent')\n7")
    assert result.value == "7"
    assert (await sandbox.run(KEY, "8")).value == "8"


async def test_no_process_that_the_code_detached_outlives_the_session(sandbox: LinuxSandbox) -> None:
    mark = f"{86400 + os.getpid()}"
    code = (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execvp('sleep', ['sleep', '{mark}'])\n    os._exit(0)\nos.wait()"
    )
    await sandbox.run(KEY, code)
    await until_running("sleep", mark)
    await sandbox.close(KEY)
    assert not running("sleep", mark)


async def test_no_detached_process_outlives_a_jail_without_namespaces(make: Make) -> None:
    mark = f"{186400 + os.getpid()}"
    code = (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execvp('sleep', ['sleep', '{mark}'])\n    os._exit(0)\nos.wait()"
    )
    sandbox = make(plans=[IsolationPlan("none", False)])
    await sandbox.run(KEY, code)
    await until_running("sleep", mark)
    await sandbox.run(KEY, "os._exit(1)")
    await sandbox.close(KEY)
    assert not running("sleep", mark)


async def test_endless_output_is_cut_to_head_and_tail_and_says_how_much(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, output_chars=1000))
    shown: list[str] = []
    code = "print('first'); print('x' * 100_000); print('last')"
    result = await sandbox.run(KEY, code, on_output=lambda stream, text: shown.append(text))
    assert result.stdout.startswith("first\nxxx")
    assert result.stdout.endswith("xxx\nlast\n")
    assert "99,012 characters left out" in result.stdout
    assert len("".join(shown)) == 500


async def test_a_hundred_megabytes_of_output_are_heard_to_the_end_in_little_memory(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "1")
    before = _resident_kb()
    highest = before

    def look(stream: str, text: str) -> None:
        nonlocal highest
        highest = max(highest, _resident_kb())

    code = "os.write(1, b'first ')\nfor n in range(100): sys.stdout.buffer.write(b'\\xff' + b'x' * (1 << 20)); print(n)"
    result = await sandbox.run(KEY, Work(f"import sys\n{code}\nos.write(2, b'last')"), on_output=look)
    assert (result.status, result.error) == ("success", None)
    assert result.stdout.startswith("first \ufffdxxx")
    assert result.stdout.endswith("xxx99\n")
    assert result.stderr == "last"
    assert len(result.stdout) < 101_000
    assert max(highest, _resident_kb()) - before < 20 << 10


def _resident_kb() -> int:
    return next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")
    )


async def test_processor_time_is_counted_in_each_run_for_itself(sandbox: LinuxSandbox) -> None:
    spin = "import time\nsince = time.process_time()\nwhile time.process_time() < since + 0.7: pass\n'done'"
    for _ in range(3):
        assert (await sandbox.run(KEY, Work(spin, cpu_s=1))).value == "'done'"
    endless = "x = 1\nwhile True:\n    try:\n        while True: pass\n    except Exception: pass"
    result = await sandbox.run(KEY, Work(endless, cpu_s=1))
    assert result.status == "timeout"
    assert "used up its 1 s of processor time" in str(result.error)
    after = await sandbox.run(KEY, "x")
    assert (after.value, after.lost) == ("1", "")


async def test_no_call_may_ask_for_more_processor_time_than_the_policy_gives(make: Make) -> None:
    result = await make(SandboxPolicy(warm=0, cpu_s=1)).run(KEY, Work("while True: pass", cpu_s=100))
    assert "used up its 1 s" in str(result.error)


async def test_a_crash_says_where_and_the_last_words_of_its_stderr(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "os.write(2, b'child boom\\n')\nos._exit(7)")
    assert "exit code 7" in str(result.error)
    assert result.stderr == "child boom\n"
    crash = await sandbox.run(KEY, "import ctypes\nctypes.string_at(0)")
    assert "SIGSEGV" in str(crash.error)
    assert 'File "<run' in crash.stderr


async def test_code_that_never_stops_printing_is_stopped(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, output_stop_mb=1))
    result = await sandbox.run(KEY, "while True: print('y' * 1000)")
    assert result.status == "error"
    assert "more than 1 MB of output" in str(result.error)
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage on the protocol channel",
        b"J\xff\xff\xff\xff",
        b"J\x00\x00\x00\x02[]",
        b"J\x00\x00\x00\x03\xff\xff\xff",
        b'J\x00\x00\x00\x0f{"type":"ready"}',
        b"J\x00\x01\x00\x00" + b"[" * 65536,
        b'J\x00\x00\x00\x37{"type": "media", "id": 2, "mime": "image/png", "size": 3}'[:60],
    ],
)
async def test_nonsense_on_the_protocol_channel_ends_the_worker_and_never_the_server(
    sandbox: LinuxSandbox, garbage: bytes
) -> None:
    await sandbox.run(KEY, "x = 1")
    find = (
        "import stat, time\nfor fd in range(3, 64):\n    try:\n"
        "        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, GARBAGE)\n    except OSError: pass\n"
        "time.sleep(20)"
    )
    result = await sandbox.run(KEY, Work(find.replace("GARBAGE", repr(garbage)), timeout_s=3))
    assert result.status in ("error", "timeout")
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


async def test_a_forged_result_harms_nothing_but_its_own_session(sandbox: LinuxSandbox) -> None:
    forge = (
        "import struct, stat, time\nbody = json.dumps({'type': 'done', 'id': 1, 'status': 'success', 'value': 'forged',"
        " 'error': None}).encode()\nfor fd in range(3, 64):\n    try:\n"
        "        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'J' + struct.pack('>I', len(body)) + body)\n"
        "    except OSError: pass\n"
    )
    await sandbox.run(TWO, "x = 1")
    assert (await sandbox.run(KEY, forge)).value in (None, "forged")
    await sandbox.run(KEY, "1")  # may meet the true result of the run before, which nobody waits for any more
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"
    assert (await sandbox.run(TWO, "x")).value == "1"


async def test_a_session_closed_while_its_code_runs_leaves_nothing(sandbox: LinuxSandbox) -> None:
    begun = asyncio.Event()
    code = "print('begun')\nwhile True: pass"
    runs = [asyncio.create_task(sandbox.run(KEY, code, on_output=lambda stream, text: begun.set())) for _ in range(2)]
    await asyncio.wait_for(begun.wait(), 20)
    await sandbox.close(KEY)
    first, second = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), 20)
    assert "closed" in str(first)
    assert isinstance(second, SandboxUnavailable)


async def test_a_run_cancelled_at_any_moment_leaves_the_session_whole(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "x = 1")
    for pause in (0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.02, 0.05):
        run = asyncio.create_task(sandbox.run(KEY, "import time\nfor _ in range(10): time.sleep(0.001)"))
        await asyncio.sleep(pause)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        result = await sandbox.run(KEY, "x")
        assert (result.value, result.lost) == ("1", "")
