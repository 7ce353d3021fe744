"""Tests paths that a session may use beside its work directory, and paths that its code was denied."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host import pool, sandbox_profiles
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox, find_denied_path
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.sandbox.conftest import Make

if sys.platform != "linux":
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

KEY = SessionKey("local", "paths")
PLANS = [plan for plan in IsolationPlan.candidates(root=os.geteuid() == 0) if plan != IsolationPlan("none", True)]


@pytest.fixture(params=PLANS, ids=lambda plan: f"{plan.namespaces}{'-drop' if plan.drop else ''}")
async def sandbox(request: pytest.FixtureRequest, make: Make) -> LinuxSandbox:
    made = make(plans=[request.param])
    if not (await made.report())["limits"]["active"]:
        pytest.skip("not possible on this system")
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pool, "NOBODYS", ())  # tests have no other place than /tmp
    folder = tmp_path / "results"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.csv").write_text("a")
    return folder


async def test_a_file_that_was_allowed_is_read_and_no_other(sandbox: LinuxSandbox, folder: Path) -> None:
    (folder / "b.csv").write_text("b")
    assert (await sandbox.run(KEY, f"open('{folder}/a.csv').read()", read=[folder / "a.csv"])).value == "'a'"
    other = await sandbox.run(KEY, f"open('{folder}/b.csv').read()", read=[folder / "a.csv"])
    assert other.denied == f"{folder}/b.csv"
    assert "A person can allow it" in str(other.error)


async def test_a_change_of_what_is_allowed_starts_the_process_again_and_says_so(
    sandbox: LinuxSandbox, folder: Path
) -> None:
    await sandbox.run(KEY, "x = 1")
    allowed = await sandbox.run(KEY, f"open('{folder}/a.csv').read()", read=[folder])
    assert (allowed.value, "has changed" in allowed.lost) == ("'a'", True)
    assert (await sandbox.run(KEY, "1", read=[folder])).lost == ""
    back = await sandbox.run(KEY, f"open('{folder}/a.csv').read()")
    assert "has changed" in back.lost
    assert back.denied == f"{folder}/a.csv"


async def test_a_folder_that_may_be_written_is_written_and_what_is_made_belongs_to_the_person(
    sandbox: LinuxSandbox, folder: Path
) -> None:
    result = await sandbox.run(KEY, f"open('{folder}/new.csv', 'w').write('made')", write=[folder])
    assert (result.error, (folder / "new.csv").read_text()) == (None, "made")
    assert (folder / "new.csv").stat().st_uid == os.getuid()


async def test_private_entries_of_a_folder_that_may_be_written_stay_closed(sandbox: LinuxSandbox, folder: Path) -> None:
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / "nb.agent.json").write_text("conversation")
    tries = [f"open('{folder}/.git/hooks/x', 'w')", f"open('{folder}/nb.agent.json').read()"]
    for code in tries:
        assert (await sandbox.run(KEY, code, write=[folder])).status == "error"
    assert list((folder / ".git" / "hooks").iterdir()) == []
    kept = await sandbox.run(KEY, f"open('{folder}/sub/new', 'w').write('x')", write=[folder])
    assert (kept.error, (folder / "sub" / "new").exists()) == (None, True)


async def test_what_is_hidden_can_not_be_allowed(make: Make, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    data = shared / "data"
    (data / "sub").mkdir(parents=True)
    (data / "sub" / "secret").write_text("secret")
    for plan in PLANS:
        sandbox = make(SandboxPolicy(warm=0, read=(str(shared),)), hidden=[data], plans=[plan])
        code = f"open('{data}/sub/secret').read()"
        for granted in ([data], [data / "sub" / "secret"], [shared], []):
            result = await sandbox.run(SessionKey("local", f"{plan} {granted}"), code, read=granted, write=granted)
            assert (result.status, result.denied) == ("error", ""), (plan, granted)
        await sandbox.aclose()


async def test_the_home_directory_can_not_be_allowed_as_a_whole(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "letter").write_text("dear")
    sandbox = make()
    assert (await sandbox.run(KEY, f"open('{tmp_path}/letter')", read=[tmp_path], write=[tmp_path])).status == "error"
    assert (await sandbox.run(KEY, f"open('{tmp_path}/letter').read()", read=[tmp_path / "letter"])).value == "'dear'"


def test_the_developers_tools_are_shown_without_what_is_secret_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory(dir="/var/tmp") as text:
        home = Path(text)
        monkeypatch.setenv("HOME", text)
        for name in (
            ".cargo/bin/cargo",
            ".cargo/credentials.toml",
            ".nvm/nvm.sh",
            ".nvm/.npmrc",
            ".ssh/id",
            "env/pyvenv.cfg",
        ):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("")
        seen = {"PATH": f"{home}/.cargo/bin:{home}/env/bin:{home}/.ssh:relative:{home}", "VIRTUAL_ENV": f"{home}/env"}
        (home / "env" / "bin").mkdir()
        hidden = [f"{home}/.ssh"]
        found = sandbox_profiles.readable(SandboxPolicy(profile="developer"), hidden, seen)
        ours = {path for path in found if path.startswith(text)}
        assert ours == {f"{home}/.cargo/bin", f"{home}/.nvm/nvm.sh", f"{home}/env"}
        assert sandbox_profiles.readable(SandboxPolicy(), hidden, seen) == []
        assert sandbox_profiles.variables(SandboxPolicy(profile="developer"), seen)["VIRTUAL_ENV"] == f"{home}/env"


@pytest.mark.parametrize(
    ("error", "path"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.csv'", "/data/a.csv"),
        ("PermissionError: [Errno 13] Permission denied: '/data/a b.csv'\nmore", "/data/a b.csv"),
        ("OSError: [Errno 30] Read-only file system: '/usr/x'", "/usr/x"),
        ('FileNotFoundError: [Errno 2] No such file or directory: "/it\'s"', "/it's"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a/../../b'", "/b"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/work/me/a.csv'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/secret/key'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/x/../secret/key'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/proc/1/x'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a\\x1b[2Jb'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/'", ""),
        ("KeyError: '/data/a.csv'", ""),
    ],
)
def test_the_path_that_code_asked_for_in_vain_is_found_in_its_error(error: str, path: str) -> None:
    assert find_denied_path(f"Traceback\n{error}", "/work/me", ["/secret"]) == path
