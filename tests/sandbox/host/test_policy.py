"""Tests the sandbox policy of settings, and the message if the sandbox is weaker than the settings request."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import SandboxUnavailable
from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.sandbox.host.policy import LAYERS, OFF, REQUIRED, SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.sandbox.conftest import Make

KEY = SessionKey("local", "policy")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
ALONE = IsolationPlan("none", False)


def layers(*missing: str, detail: str = "no") -> dict[str, dict[str, Any]]:
    return {name: {"required": False, "active": name not in missing, "detail": detail} for name in LAYERS}


def test_settings_are_the_limits() -> None:
    settings = Settings(
        sandbox_memory_mb=300,
        sandbox_cpu_s=7,
        sandbox_procs=9,
        sandbox_fds=99,
        sandbox_file_mb=5,
        sandbox_network="full",
    )
    policy = SandboxPolicy.of(settings)
    limits = policy.limits()
    assert (limits["memory_mb"], limits["session_memory_mb"], limits["cpu_s"]) == (300, 600, 7)
    assert (limits["procs"], limits["fds"], limits["file_mb"], policy.network) == (9, 99, 5, "full")


def test_paths_and_variables_come_from_settings() -> None:
    settings = Settings(sandbox_read="/data: ~/more", sandbox_write="/out", sandbox_env="KEY, GONE, OWN=a=b")
    policy = SandboxPolicy.of(settings, {"KEY": "value", "SECRET": "x"})
    assert policy.read == ("/data", os.path.expanduser("~/more"))
    assert (policy.write, policy.env) == (("/out",), (("KEY", "value"), ("OWN", "a=b")))


@pytest.mark.parametrize(("mode", "required"), [("on", LAYERS), ("auto", REQUIRED), ("off", ())])
def test_the_mode_says_what_must_be_in_force(mode: Any, required: tuple[str, ...]) -> None:
    assert SandboxPolicy.of(Settings(sandbox=mode)).required == required


def test_what_is_missing_is_said_with_its_reason() -> None:
    policy = SandboxPolicy()
    assert policy.less(layers()) == ""
    assert policy.less(layers("mounts", "pids", detail="refused")) == "The sandbox is without mounts, pids: refused."
    assert SandboxPolicy(mode="off").less({}) == OFF


@linux
async def test_with_on_a_missing_layer_is_a_refusal_that_names_it(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, mode="on", required=LAYERS), plans=[ALONE])
    with pytest.raises(SandboxUnavailable, match="namespaces"):
        await sandbox.run(KEY, "1")


@linux
async def test_with_auto_every_result_says_what_is_missing(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, network="loopback"), plans=[ALONE])
    for _ in range(2):
        result = await sandbox.run(KEY, "1 + 1")
        assert result.value == "2"
        assert "namespaces, mounts, pids" in result.less
        assert "loopback needs a network namespace" in result.less
    report = await sandbox.report()
    assert not report["network"]["active"]
    assert not report["namespaces"]["required"]


@linux
async def test_off_is_a_plain_process_with_limits_and_says_so(make: Make, tmp_path: Path) -> None:
    sandbox = make(SandboxPolicy(warm=0, mode="off", fds=200, required=()))
    (tmp_path / "outside").write_text("seen")
    code = f"import resource\nresource.getrlimit(resource.RLIMIT_NOFILE)[0], open({str(tmp_path / 'outside')!r}).read()"
    result = await sandbox.run(KEY, code)
    assert (result.value, result.less) == ("(200, 'seen')", OFF)
    report = await sandbox.report()
    assert report["isolation"]["detail"] == OFF
    assert "seccomp" not in report
    assert (await sandbox.run(KEY, "import os; os.getcwd()")).value == repr(str(sandbox.workdir(KEY)))


@linux
async def test_code_sees_the_variables_it_was_given_and_no_others(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("CONDA_PREFIX", "/conda")
    sandbox = make(SandboxPolicy(warm=0, env=(("MINE", "1"),), profile="developer"))
    look = "import os, subprocess\n[os.environ.get(n) for n in ('MINE', 'API_KEY', 'CONDA_PREFIX')]"
    assert (await sandbox.run(KEY, look)).value == "['1', None, '/conda']"
    child = "subprocess.run(['env'], capture_output=True, text=True).stdout"
    said = str((await sandbox.run(KEY, child)).value)
    assert "MINE=1" in said
    assert "secret" not in said
    restricted = make(SandboxPolicy(warm=0))
    assert (await restricted.run(KEY, look)).value == "[None, None, None]"


@linux
async def test_the_report_says_which_interpreter_runs_and_whose_it_is(make: Make) -> None:
    sandbox = make()
    assert (await sandbox.run(KEY, "1")).interpreter == f"{sys.executable} (the server's)"
    assert "the server's" in (await sandbox.report())["interpreter"]["detail"]


@linux
async def test_a_kernels_interpreter_is_used_where_it_can_be_else_the_servers(make: Make, tmp_path: Path) -> None:
    other = Path("/usr/bin/python3")
    sandbox: LinuxSandbox = make()
    sandbox.kernel_of = lambda session: str(tmp_path / "missing") if session.id == "a" else str(other)
    gone = await sandbox.run(SessionKey("local", "a"), "import sys; sys.executable")
    assert (gone.value, gone.interpreter) == (repr(sys.executable), f"{sys.executable} (the server's)")
    if not other.exists() or other.resolve() == Path(sys.executable).resolve():
        pytest.skip("no second interpreter")
    result = await sandbox.run(SessionKey("local", "b"), "import sys; sys.version_info >= (3, 11), sys.prefix")
    if "the server's" in result.interpreter:
        pytest.skip("the second interpreter is too old")
    assert (result.value, result.interpreter) == ("(True, '/usr')", f"{other} (the kernel's)")


@linux
async def test_a_loopback_is_the_sessions_own(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, network="loopback"))
    if not (await sandbox.report())["network"]["active"]:
        pytest.skip("needs a network namespace")
    serve = (
        "import socket, threading\nserver = socket.create_server(('127.0.0.1', 8000))\n"
        "def answer():\n    while True: server.accept()[0].sendall(b'mine')\n"
        "threading.Thread(target=answer, daemon=True).start()\nsocket.create_connection(('localhost', 8000)).recv(9)"
    )
    assert (await sandbox.run(KEY, serve)).value == "b'mine'"
    other = await sandbox.run(
        SessionKey("local", "other"), "import socket\nsocket.create_connection(('127.0.0.1', 8000))"
    )
    assert "ConnectionRefusedError" in str(other.error)
    away = await sandbox.run(KEY, "socket.create_connection(('1.1.1.1', 53), 2)")
    assert "unreachable" in str(away.error)
