"""Tests ``%%agent`` in kernels that a real Jupyter Kernel Gateway or Enterprise Gateway runs for a server with
``--gateway-url``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.notebook.notebook import Notebook
from tests.server import PLAIN, AgentServer, followed, free_port, start_turn, text_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
TOKEN = "token-of-the-gateway"
SCRIPT: list[dict[str, Any]] = [
    {"when": "compute", "calls": [{"name": "python", "arguments": {"code": "print(x * 7)"}}]},
    {"when": "compute", "text": "It is 42."},
    {"when": "from the panel", "calls": [{"name": "python", "arguments": {"code": "print(x * 7)"}}]},
    {"when": "from the panel", "text": "There is no x."},
    {"text": "Hello.", "loop": True},
]
GATEWAYS = {"kernel_gateway": "KernelGatewayApp", "enterprise_gateway": "EnterpriseGatewayApp"}
"""The classes that have the address and the token of a gateway, by the module that starts it."""
LISTING = {"kernel_gateway": "JupyterWebsocketPersonality", "enterprise_gateway": "EnterpriseGatewayApp"}
LAUNCH = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
PEEK = "from agent_kernel.notebook.server_client import server_of_this_kernel as s; print(s().token)"
SPECS = {"python3": [*LAUNCH, "--ext=agent_kernel"], "plain": LAUNCH}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=GATEWAYS)
async def server(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    gateway_python: str,
    enterprise_python: str,
) -> AsyncGenerator[AgentServer, None]:
    directory = tmp_path_factory.mktemp("gateway")
    for name, argv in SPECS.items():
        (directory / "data" / "kernels" / name).mkdir(parents=True)
        spec = {"argv": argv, "display_name": name, "language": "python"}
        (directory / "data" / "kernels" / name / "kernel.json").write_text(json.dumps(spec))
    port, own = free_port(), directory / "server"
    python = enterprise_python if request.param == "enterprise_gateway" else gateway_python
    gateway = begin(python, request.param, port, directory, own / "runtime")
    options = (f"--GatewayClient.url=http://127.0.0.1:{port}", f"--GatewayClient.auth_token={TOKEN}")
    server = AgentServer(own, SCRIPT, options=options)
    try:
        await until_up(port)
        yield await server.start()
        await server.stop()
    finally:
        server.sweep()
        gateway.terminate()
        gateway.wait(60)


def begin(python: str, module: str, port: int, directory: Path, runtime: Path) -> subprocess.Popen[bytes]:
    """Start the gateway. Its connection files are in the directory in which tests look for those of a server."""
    own = {
        "JUPYTER_PATH": str(directory / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "EG_UNAUTHORIZED_USERS": "nobody",  # by default root, as which tests may run
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_KERNEL_", "JUPYTER"))}
    traits = {"ip": "127.0.0.1", "port": port, "auth_token": TOKEN}
    options = [f"--{GATEWAYS[module]}.{name}={value}" for name, value in traits.items()]
    command = [python, "-m", module, *options, f"--{LISTING[module]}.list_kernels=True"]
    with (directory / "gateway.log").open("ab") as log:
        return subprocess.Popen(command, env={**inherited, **own}, cwd=directory, stdout=log, stderr=log)


async def until_up(port: int) -> None:
    end = time.monotonic() + 60
    async with httpx.AsyncClient(headers={"Authorization": f"token {TOKEN}"}, **PLAIN) as http:
        while time.monotonic() < end:
            try:
                if (await http.get(f"http://127.0.0.1:{port}/api/kernelspecs")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
    raise AssertionError("the gateway did not start")


def gateway_url(server: AgentServer) -> str:
    return server.options[0].partition("=")[2]


async def test_a_cell_is_answered_and_its_code_runs_in_the_remote_kernel(server: AgentServer) -> None:
    async with Notebook(server, await server.start_kernel("first.ipynb")) as notebook:
        assert (await notebook.run("x = 6")).status == "ok"
        ran = await notebook.run("%%agent\ncompute")
        assert ran.status == "ok", ran.error
        assert "It is 42." in ran.text
        assert "42" in ran.all
    async with server.client() as http:
        (session,) = (await http.get("agent/v1/sessions")).json()["sessions"]
    assert "first.ipynb" in json.dumps(session["notebooks"])


async def test_programs_that_the_user_starts_in_it_do_not_inherit_the_credential(server: AgentServer) -> None:
    async with Notebook(server, await server.start_kernel("environment.ipynb")) as notebook:
        assert (await notebook.run("%%agent\nhello")).status == "ok"
        ran = await notebook.run("import os; print([name for name in os.environ if 'TOKEN' in name])")
    assert ran.printed.strip() == "[]"


async def test_where_the_kernel_spec_does_not_load_the_magic_the_user_does(server: AgentServer) -> None:
    async with Notebook(server, await server.start_kernel("plain.ipynb", "plain")) as notebook:
        assert "UsageError" in (await notebook.run("%%agent\nhello")).all
        assert (await notebook.run("%load_ext agent_kernel")).status == "ok"
        ran = await notebook.run("%%agent\nhello")
    assert "Hello." in ran.text


async def test_the_code_of_a_turn_of_the_panel_runs_in_the_sandbox_of_the_server(server: AgentServer) -> None:
    kernel = await server.start_kernel("panel.ipynb")
    async with Notebook(server, kernel) as notebook:
        assert (await notebook.run("x = 6")).status == "ok"
    async with server.client() as http:
        events = await followed(http, (await start_turn(http, "from the panel", kernel=kernel))["turn"])
        variables = await http.get(f"agent/v1/binding/variables?kernel={kernel}")
    (ran,) = [event["data"]["text"] for event in events if event["type"] == "call.finished"]
    assert "NameError" in ran
    assert text_of(events).startswith("There is no x.")
    assert variables.json()["variables"] == []


async def test_the_credential_of_a_kernel_that_the_gateway_ended_is_not_valid(server: AgentServer) -> None:
    kernel = await server.start_kernel("ended.ipynb")
    async with Notebook(server, kernel) as notebook:
        token = (await notebook.run(PEEK)).printed.strip()
    async with httpx.AsyncClient(headers={"Authorization": f"token {TOKEN}"}, **PLAIN) as gateway:
        (await gateway.delete(f"{gateway_url(server)}/api/kernels/{kernel}")).raise_for_status()
    async with server.client() as http, server.kernel_client(token) as ours:
        assert kernel not in (await http.get("api/kernels")).text
        assert (await ours.get("agent/v1/binding")).status_code == 401


async def test_it_goes_on_after_a_restart_and_its_credential_ends_with_it(server: AgentServer) -> None:
    kernel = await server.start_kernel("restarted.ipynb")
    async with Notebook(server, kernel) as notebook, server.client() as http:
        token = (await notebook.run(PEEK)).printed.strip()
        (await http.post(f"api/kernels/{kernel}/restart")).raise_for_status()
    async with Notebook(server, kernel) as notebook, server.client() as http:
        assert "Hello." in (await notebook.run("%%agent\nhello")).text
        async with server.kernel_client(token) as ours:
            assert (await ours.get("agent/v1/binding")).status_code == 200
            (await http.delete(f"api/kernels/{kernel}")).raise_for_status()
            assert (await ours.get("agent/v1/binding")).status_code == 401
