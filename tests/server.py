"""A real Jupyter server with the extension in its own process, which a test starts, kills and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from jupyter_client.asynchronous.client import AsyncKernelClient

from tests.narrowing import not_none

ROOT = Path(__file__).parents[1]
LABEXTENSIONS = ROOT / "jupyter_ext" / "labextensions"
"""As built last; what an editable install has is the copy of that day."""
TOKEN = "test-token"
START_S = 60.0
FIRST_PORT, PORTS, WORKERS = 20_000, 1_500, 8
STOP_S = 30.0
KERNEL_HEADER = "X-Agent-Kernel-Token"

PLAIN: Any = {"trust_env": False, "verify": False}
"""No proxy, and no certificates to load: that alone takes half a second."""

OTHERS = ("jupyterlab", "jupyter_lsp", "jupyter_server_terminals", "notebook_shim")

Json = dict[str, Any]


@dataclass
class AgentServer:
    """A server. ``directory`` contains all its files. ``traits`` are those of AgentKernel, ``server`` those of
    ServerApp and other classes by full name.

    Servers with the same ``data_dir`` share one session store. ``lab`` adds JupyterLab, which takes a second longer to
    start. ``extensions`` are loaded after ours, ``input`` is its stdin as for Popen. ``login`` is its token; if it is
    empty, no login is needed.
    """

    directory: Path
    script: Sequence[Json] = ()
    traits: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    data_dir: Path | None = None
    lab: bool = False
    extensions: Sequence[str] = ()
    input: int | None = None
    login: str = TOKEN
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def pid(self) -> int:
        return not_none(self.process).pid

    @property
    def root(self) -> Path:
        """The directory of its notebooks."""
        return self.directory / "notebooks"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def agent_url(self) -> str:
        return f"{self.url}agent/v1/"

    def client(self, token: str | None = TOKEN, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
        """Return a client for paths like ``agent/v1/turns`` and ``api/kernels``; with ``token=None`` nobody is logged
        in.
        """
        login = {"Authorization": f"token {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.url, headers={**login, **(headers or {})}, timeout=60, **PLAIN)

    def blocking_client(self, headers: Mapping[str, str], cookies: Mapping[str, str] | None = None) -> httpx.Client:
        """Return a client for tests that are not async; it has no login except these headers and cookies."""
        return httpx.Client(base_url=self.url, headers=headers, cookies=dict(cookies or {}), timeout=60, **PLAIN)

    def kernel_client(self, kernel_token: str) -> httpx.AsyncClient:
        """Return a client with the credential of a kernel, as its magic has."""
        return self.client(None, {KERNEL_HEADER: kernel_token})

    async def start(self, port: int = 0, *, answer: int = 404) -> AgentServer:
        """Start the server. ``port`` is that of an earlier server, for clients that wait for it. ``answer`` is the
        status for a turn that does not exist; it differs if the store cannot be used.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        script = self.directory / "script.json"
        script.write_text(json.dumps(list(self.script)))
        if self.lab:
            self._decline_news()
            self._decline_build()
        self.port = port or free_port()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self._command(script)],
                stdin=self.input,
                stdout=output,
                stderr=output,
                env=self._environment(),
                start_new_session=True,
            )
        await self._until_up(answer)
        return self

    def _decline_news(self) -> None:
        """Answer JupyterLab's question about news in advance: it comes late, and covers what a test clicks."""
        folder = self.directory / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')

    def _decline_build(self) -> None:
        """Turn off the check that looks, with three processes of node, whether JupyterLab has to be built again."""
        folder = self.directory / "config" / "labconfig"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "page_config.json").write_text('{"buildCheck": false}')

    async def stop(self) -> int:
        """Stop the server as a user does. Return its exit code."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill the server process alone."""
        await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = await asyncio.to_thread(self.process.wait, STOP_S)
        self.process = None
        return code

    def __enter__(self) -> AgentServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.sweep()

    def sweep(self) -> None:
        """Kill all remaining processes, also the kernels of a killed server."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(STOP_S)
            self.process = None

    def processes(self) -> list[int]:
        """Return the living processes that this server started; each has the server's directory in its environment."""
        mark = f"AGENT_SERVER_TEST={self.directory}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(entry.name)] if state != "Z" else []
        return found

    def _command(self, script: Path) -> list[str]:
        traits = {
            "engine": "scripted",
            "script": str(script),
            "data_dir": str(self.data_dir or self.directory / "data"),
        }
        extensions = dict.fromkeys(OTHERS, self.lab) | dict.fromkeys(["jupyter_ext", *self.extensions], True)
        return [
            *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.root_dir={self.root}",
            f"--IdentityProvider.token={self.login}",
            f"--ServerApp.jpserver_extensions={extensions}",
            *(f"--AgentKernel.{name}={value}" for name, value in {**traits, **self.traits}.items()),
            *(self._lab_options() if self.lab else ()),
            *self.options,
        ]

    def _lab_options(self) -> tuple[str, ...]:
        """No test needs a language server, and to look for those of node takes a second of processor time."""
        return (f"--LabApp.extra_labextensions_path={LABEXTENSIONS}", "--LanguageServerManager.autodetect=False")

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("AGENT_KERNEL_", "JUPYTER"))
        }
        own = {
            "JUPYTER_CONFIG_DIR": str(self.directory / "config"),
            "JUPYTER_RUNTIME_DIR": str(self.directory / "runtime"),
            "IPYTHONDIR": str(self.directory / "ipython"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "AGENT_SERVER_TEST": str(self.directory),
        }
        return {**inherited, **own, **self.env}

    async def _until_up(self, answer: int) -> None:
        """Wait until this server answers. It writes the file about itself when it has the port, so an answer without
        that file is of another server, which took the port before.
        """
        assert self.process is not None
        own = Path(self._environment()["JUPYTER_RUNTIME_DIR"]) / f"jpserver-{self.process.pid}.json"
        until = time.monotonic() + START_S
        async with self.client(self.login) as client:
            while time.monotonic() < until:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server did not start:\n{self.log.read_text()[-4000:]}")
                with contextlib.suppress(httpx.TransportError):
                    if own.exists() and (await client.get("agent/v1/turns/none")).status_code == answer:
                        return
                await asyncio.sleep(0.1)
        raise RuntimeError(f"the server did not answer:\n{self.log.read_text()[-4000:]}")

    async def start_kernel(self, notebook: str | None = None, name: str = "python3") -> str:
        """Start a kernel, with a session for the notebook if one is given, and return its id. A missing notebook is
        created empty.
        """
        async with self.client() as client:
            if notebook is None:
                reply = await client.post("api/kernels", json={"name": name})
                reply.raise_for_status()
                return str(reply.json()["id"])
            if not (self.root / notebook).exists():
                await self.save_notebook(notebook)
            body = {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": name}}
            reply = await client.post("api/sessions", json=body)
            reply.raise_for_status()
            return str(reply.json()["kernel"]["id"])

    async def save_notebook(self, path: str, source: str = "") -> None:
        cells = [{"cell_type": "markdown", "id": "c1", "metadata": {}, "source": source}]
        content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        async with self.client() as client:
            reply = await client.put(f"api/contents/{path}", json={"type": "notebook", "content": content})
            reply.raise_for_status()

    @asynccontextmanager
    async def kernel(self, kernel: str) -> AsyncIterator[AsyncKernelClient]:
        """Yield a client that executes code in the kernel."""
        client = AsyncKernelClient(connection_file=str(self.directory / "runtime" / f"kernel-{kernel}.json"))
        client.load_connection_file()
        client.start_channels(hb=False)  # on a busy machine a late heartbeat is no dead kernel
        try:
            await client.wait_for_ready(timeout=START_S)
            yield client
        finally:
            client.stop_channels()

    async def run_in_kernel(self, kernel: str, code: str) -> str:
        """Return what the code printed, or its error."""
        said: list[str] = []

        def hear(message: Json) -> None:
            content = message["content"]
            said.append(content.get("text") or "\n".join(content.get("traceback", [])))

        async with self.kernel(kernel) as client:
            await asyncio.wait_for(client.execute_interactive(code, output_hook=hear, allow_stdin=False), START_S)
        return "".join(said)

    async def kernel_environment(self, kernel: str) -> dict[str, str]:
        """Return the environment with which the kernel's process was started."""
        pid = int(await self.run_in_kernel(kernel, "import os; print(os.getpid())"))
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)

    async def kernel_token(self, kernel: str) -> str:
        return (await self.kernel_environment(kernel))["AGENT_KERNEL_TOKEN"]


def free_port() -> int:
    """Return a port that nothing listens on. Until its server has it, other tests could take it: so each process of
    pytest-xdist has ports of its own, and none is among those that the system gives to connections.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = FIRST_PORT + PORTS * (worker % WORKERS) + secrets.randbelow(PORTS)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


async def start_turn(client: httpx.AsyncClient, prompt: str, **body: Any) -> Json:
    reply = await client.post("agent/v1/turns", json={"prompt": prompt, **body})
    assert reply.status_code == 202, reply.text
    started: Json = reply.json()
    return started


async def follow(
    client: httpx.AsyncClient,
    turn: str,
    after: int = 0,
    last_event_id: int | None = None,
    away: Collection[int] = (),
) -> AsyncIterator[Json]:
    """Yield the events of a turn as they arrive; break out of the loop to disconnect. Yield nothing if the status is
    one of ``away``.
    """
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    query = {"after": after} if after else {}
    async with client.stream("GET", f"agent/v1/turns/{turn}/events", params=query, headers=headers) as reply:
        if reply.status_code in away:
            return
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


async def followed(client: httpx.AsyncClient, turn: str, after: int = 0) -> list[Json]:
    """Return all events of a turn, after it has ended."""
    return [event async for event in follow(client, turn, after)]


async def wait_for_event(client: httpx.AsyncClient, turn: str, kind: str, after: int = 0) -> Json:
    """Return the first event of that type, and disconnect."""
    async with contextlib.aclosing(follow(client, turn, after)) as events:  # type: ignore[type-var]
        async for event in events:
            if event["type"] == kind:
                return event
    raise AssertionError(f"the turn ended without {kind}")


async def items_of(client: httpx.AsyncClient, session: str) -> list[tuple[str, str]]:
    """Return the role and the content of each stored message."""
    items = (await client.get(f"agent/v1/sessions/{session}/items")).json()["items"]
    return [(item["message"]["role"], item["message"]["content"]) for item in items]


def text_of(events: Sequence[Json]) -> str:
    return "".join(event["data"]["text"] for event in events if event["type"] == "text.delta")
