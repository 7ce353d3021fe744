"""Tests real kernels of a real server: what they receive at start, and what their end means for turns and
credentials.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from jupyter_client.kernelspec import NoSuchKernel

from jupyter_ext.notebooks.kernels import KernelCredentials, runs_ipykernel
from tests.jupyter_ext.conftest import HANG, HELLO
from tests.scripted import python_when
from tests.server import ROOT, AgentServer, Json, followed, start_turn, wait_for_event

LAUNCH = "from ipykernel.kernelapp import launch_new_instance as launch; launch()"
DEFINE = python_when("define", "x = 1")
BLOCK = "import sys; sys.modules['agent_kernel'] = None"


def kernelspec(directory: Path, name: str, argv: list[str], env: dict[str, str] | None = None) -> None:
    spec = directory / "kernels" / name
    spec.mkdir(parents=True)
    body = {"argv": argv, "display_name": name, "language": "python", "env": env or {}}
    (spec / "kernel.json").write_text(json.dumps(body))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """A user's server: a profile with an IPython extension, and kernelspecs of other kinds."""
    home = tmp_path_factory.mktemp("kernels")
    modules, blocked, data = home / "modules", home / "blocked", home / "data"
    profile = home / "server" / "ipython" / "profile_default"
    for directory in (modules, blocked, profile):
        directory.mkdir(parents=True)
    for name in ("mine", "yours", "theirs"):
        (modules / f"{name}.py").write_text("def load_ipython_extension(shell): pass\n")
    (blocked / "sitecustomize.py").write_text(BLOCK)
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.extensions = ['mine']\n")
    (profile / "ipython_config.py").write_text("c.InteractiveShellApp.extensions = ['theirs']\n")
    file = ["-f", "{connection_file}"]
    kernelspec(data, "with-extension", [sys.executable, "-m", "ipykernel_launcher", *file, "--ext=yours"])
    kernelspec(data, "without-us", [sys.executable, "-m", "ipykernel_launcher", *file], {"PYTHONPATH": str(blocked)})
    kernelspec(data, "not-ipykernel", [sys.executable, "-c", LAUNCH, *file])
    paths = {"JUPYTER_PATH": str(data), "PYTHONPATH": os.pathsep.join([str(ROOT), str(modules)])}
    with AgentServer(home / "server", [*DEFINE, *DEFINE, HANG, HELLO], env=paths) as server:
        yield asyncio.run(server.start())


async def loaded_modules(server: AgentServer, kernel: str) -> Json:
    code = "import json, sys; ip = get_ipython(); print(json.dumps({'ours': 'agent_kernel' in sys.modules, "
    code += "'extensions': sorted(ip.extension_manager.loaded)}))"
    said = await server.run_in_kernel(kernel, code)
    found: Json = json.loads(said.splitlines()[-1])
    return found


async def test_a_kernel_reaches_its_server_with_what_it_was_started_with(server: AgentServer) -> None:
    kernel = await server.start_kernel("reach.ipynb")
    given = await server.kernel_environment(kernel)
    assert given["AGENT_KERNEL_URL"] == server.url
    assert given["AGENT_KERNEL_ID"] == kernel
    async with server.kernel_client(given["AGENT_KERNEL_TOKEN"]) as client:
        binding = (await client.get("agent/v1/binding")).json()
    assert (binding["kernel"], binding["notebook"], binding["namespace"]) == (kernel, "reach.ipynb", "local")


async def test_our_extension_comes_beside_those_of_a_profile(server: AgentServer) -> None:
    found = await loaded_modules(server, await server.start_kernel())
    assert found["ours"]
    assert {"mine", "theirs"} & set(found["extensions"]) == {"mine"}, "IPKernelApp.extensions is the nearer one"


async def test_our_extension_comes_beside_one_that_a_kernelspec_names(server: AgentServer) -> None:
    found = await loaded_modules(server, await server.start_kernel(name="with-extension"))
    assert found["ours"]
    assert {"mine", "yours"} <= set(found["extensions"])


async def test_a_kernel_of_an_environment_without_us_works(server: AgentServer) -> None:
    kernel = await server.start_kernel(name="without-us")
    found = await loaded_modules(server, kernel)
    assert "agent_kernel" not in found["extensions"]
    assert await server.run_in_kernel(kernel, "print(6 * 7)") == "42\n"
    async with server.client() as user:
        events = await followed(user, (await start_turn(user, "one", kernel=kernel, where="draft"))["turn"])
    notices = [event["data"]["text"] for event in events if event["type"] == "notice"]
    assert any("-m pip install agent-kernel-magic" in text for text in notices)


async def test_a_kernel_that_is_no_ipykernel_is_left_alone(server: AgentServer) -> None:
    kernel = await server.start_kernel(name="not-ipykernel")
    given = await server.kernel_environment(kernel)
    assert not [name for name in given if name.startswith("AGENT_KERNEL_")]
    assert not (await loaded_modules(server, kernel))["ours"]


async def test_a_restart_rotates_the_credential_and_begins_another_epoch(
    server: AgentServer, api: httpx.AsyncClient
) -> None:
    kernel = await server.start_kernel("restart.ipynb")
    old = await server.kernel_token(kernel)
    await followed(api, (await start_turn(api, "define x", kernel=kernel, where="draft"))["turn"])
    (await api.post(f"api/kernels/{kernel}/restart")).raise_for_status()
    new = await server.kernel_token(kernel)
    assert new != old
    async with server.kernel_client(old) as before, server.kernel_client(new) as after:
        assert (await before.get("agent/v1/binding")).status_code == 401
        assert (await after.get("agent/v1/binding")).json()["notebook"] == "restart.ipynb"
    second = await start_turn(api, "two", kernel=kernel, where="live")
    events = await followed(api, second["turn"])
    assert "state.lost" in [event["type"] for event in events]
    turns = (await api.get(f"agent/v1/sessions/{second['session']}/items")).json()["turns"]
    assert len({turn["epoch"] for turn in turns}) == 2


@pytest.mark.parametrize(("prompt", "lost"), [("define x", True), ("hello", False)])
async def test_variables_are_lost_with_a_kernel_only_if_code_defined_some(
    server: AgentServer, api: httpx.AsyncClient, prompt: str, lost: bool
) -> None:
    kernel = await server.start_kernel(f"lost-{lost}.ipynb")
    begun = await start_turn(api, prompt, kernel=kernel, where="draft")
    await followed(api, begun["turn"])
    (await api.post(f"api/kernels/{kernel}/restart")).raise_for_status()
    away = (await api.get(f"agent/v1/sessions/{begun['session']}/meanwhile?since=0&kernel={kernel}")).json()
    assert bool(away["lost"]["kernel"]) is lost
    events = await followed(api, (await start_turn(api, "two", kernel=kernel, where="draft"))["turn"])
    assert ("state.lost" in [event["type"] for event in events]) is lost


async def test_a_killed_kernel_cancels_its_turn_and_comes_back_with_another_credential(server: AgentServer) -> None:
    kernel = await server.start_kernel("killed.ipynb")
    token = await server.kernel_token(kernel)
    pid = int(await server.run_in_kernel(kernel, "import os; print(os.getpid())"))
    async with server.client() as user, server.kernel_client(token) as client:
        turn = (await start_turn(client, "hang"))["turn"]
        await wait_for_event(client, turn, "text.delta")
        os.kill(pid, signal.SIGKILL)
        events = await asyncio.wait_for(followed(user, turn), 60)
        assert events[-1]["data"]["state"] == "cancelled"
        assert events[-1]["data"]["reason"] == "the kernel died and was restarted"
        assert (await client.get("agent/v1/binding")).status_code == 401
        assert await server.kernel_token(kernel) != token


async def test_a_kernel_that_is_shut_down_takes_its_turn_and_its_credential_along(server: AgentServer) -> None:
    kernel = await server.start_kernel("shutdown.ipynb")
    token = await server.kernel_token(kernel)
    async with server.client() as user, server.kernel_client(token) as client:
        turn = (await start_turn(client, "hang"))["turn"]
        await wait_for_event(client, turn, "text.delta")
        assert (await user.delete(f"api/kernels/{kernel}")).status_code == 204
        assert (await followed(user, turn))[-1]["data"]["reason"] == "the kernel was shut down"
        assert (await client.get("agent/v1/binding")).status_code == 401


async def test_kernels_of_one_notebook_share_its_session_and_one_without_a_notebook_has_its_own(
    server: AgentServer,
    api: httpx.AsyncClient,
) -> None:
    kernels = [await server.start_kernel("shared.ipynb")]
    body = {"path": "shared.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
    second = (await api.post("api/kernels", json={"name": "python3"})).json()["id"]
    session = (await api.get("api/sessions")).json()
    assert kernels[0] in [found["kernel"]["id"] for found in session]
    one = await start_turn(api, "hello", kernel=kernels[0])
    alone = await start_turn(api, "hello", kernel=second)
    assert alone["session"] != one["session"]
    assert alone["notebook"] is None
    found = next(row for row in session if row["kernel"]["id"] == kernels[0])
    patched = await api.patch(f"api/sessions/{found['id']}", json={**body, "kernel": {"id": second}})
    patched.raise_for_status()
    assert (await start_turn(api, "hello", kernel=second))["session"] == one["session"]


async def test_a_session_of_another_notebook_needs_a_person(server: AgentServer) -> None:
    kernel = await server.start_kernel("asking.ipynb")
    async with server.client() as user, server.kernel_client(await server.kernel_token(kernel)) as client:
        await user.post("agent/v1/sessions", json={"id": "old", "title": "<b>Old & dear</b>"})
        assert (await client.post("agent/v1/turns", json={"prompt": "x", "session": "old"})).status_code == 403
        pending = (await client.put("agent/v1/binding", json={"session": "old"})).json()
        status = f"agent/v1/binds/{pending['pending']}"
        assert (await client.get(status)).json() == {"status": "waiting"}
        page = await user.get(pending["url"])
        assert "&lt;b&gt;Old &amp; dear&lt;/b&gt;" in page.text
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert "<script" not in page.text
        assert (await user.post(pending["url"], data={"decision": "confirmed"})).status_code == 200
        assert (await client.get(status)).json() == {"status": "confirmed"}
        assert (await client.get("agent/v1/binding")).json()["session"]["id"] == "old"
        assert (await start_turn(client, "hello"))["session"] == "old"
        assert (await user.post(pending["url"], data={"decision": "denied"})).status_code == 409


def test_credentials_are_kept_as_hashes_and_only_the_newest_of_a_kernel_is_valid() -> None:
    credentials = KernelCredentials()
    old, other = credentials.issue("k"), credentials.issue("other")
    new = credentials.issue("k")
    assert [credentials.kernel(token) for token in (old, new, other, "", "\ud800")] == [None, "k", "other", None, None]
    assert not {old, new, other} & set(repr(vars(credentials)).split("'"))
    credentials.revoke("k")
    assert credentials.kernel(new) is None


@pytest.mark.parametrize(
    ("argv", "ours"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"], True),
        (["/opt/env/bin/python3", "-Xfrozen_modules=off", "-m", "ipykernel", "-f", "x"], True),
        (["R", "--slave", "-e", "IRkernel::main()", "--args", "x"], False),
        (["xpython", "-f", "ipykernel.json"], False),
        ([], False),
    ],
)
def test_a_kernelspec_that_runs_ipykernel_is_known_by_its_module(argv: list[str], ours: bool) -> None:
    manager: Any = SimpleNamespace(kernel_spec=SimpleNamespace(argv=argv))
    assert runs_ipykernel(manager) is ours


def test_a_kernelspec_that_is_missing_is_left_to_jupyter_to_complain_about() -> None:
    class Missing:
        @property
        def kernel_spec(self) -> None:
            raise NoSuchKernel("gone")

    manager: Any = Missing()
    assert runs_ipykernel(manager) is False
