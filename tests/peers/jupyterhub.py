"""A real JupyterHub with its proxy; its single-user servers have the extension of this repository."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.narrowing import not_none
from tests.server import PLAIN, ROOT, free_port

PROXY = "configurable-http-proxy@5"
SERVICE_TOKEN = "service-token-0123456789abcdef"
PASSWORD = "a long password"
START_S = 90.0
CONFIG = """
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.cmd = [{singleuser!r}]
c.Spawner.args = ["--allow-root"]
c.Spawner.ip = "127.0.0.1"
c.Spawner.http_timeout = c.Spawner.start_timeout = {start_s}
c.Spawner.environment = {environment!r}
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.services = [{{"name": "tests", "api_token": {token!r}}}]
scopes = ["admin:users", "admin:servers", "access:servers", "tokens", "shutdown"]
c.JupyterHub.load_roles = [{{"name": "tests", "scopes": scopes, "services": ["tests"]}}]
"""
SERVICE = """
service = {{"name": "agent", "display": False, "url": {url!r}, "command": {command!r}, "environment": {environment!r}}}
c.JupyterHub.services.append(service)
access = "access:services!service=agent"
c.JupyterHub.load_roles.append({{"name": "user", "scopes": ["self", access]}})
c.Spawner.server_token_scopes = ["users:activity!user", "access:servers!server", access]
"""


@dataclass(frozen=True, slots=True)
class HubUser:
    """A user whose server is running; ``token`` is a token of the hub for that user."""

    name: str
    hub_url: str
    home: Path
    token: str

    @property
    def directory(self) -> Path:
        """The user's home directory. Its folder ``runtime`` has the connection files of the kernels."""
        return self.home

    @property
    def url(self) -> str:
        """The URL of the user's server at the proxy."""
        return f"{self.hub_url}user/{self.name}/"

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """A client for paths like ``agent/v1/turns``, through the proxy, with this user's token or another one."""
        headers = {"Authorization": f"token {self.token if token is None else token}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60, **PLAIN)

    @asynccontextmanager
    async def logged_in(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client with the cookies of a browser in which the user logged in to the hub by its form."""
        async with httpx.AsyncClient(base_url=self.hub_url, timeout=60, follow_redirects=True, **PLAIN) as browser:
            await browser.get("hub/login")
            form = {"username": self.name, "password": PASSWORD, "_xsrf": browser.cookies["_xsrf"]}
            (await browser.post("hub/login?next=/hub/home", data=form)).raise_for_status()
            yield browser

    async def notebook(self, path: str) -> str:
        """Create a notebook with a kernel. Return the id of the kernel."""
        content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        session = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
        async with self.client() as http:
            made = await http.put(f"api/contents/{path}", json={"type": "notebook", "content": content})
            made.raise_for_status()
            started = await http.post("api/sessions", json=session)
            started.raise_for_status()
        return str(started.json()["kernel"]["id"])


class Hub:
    """A JupyterHub, used with ``async with``. ``python`` is an interpreter that has jupyterhub; everything else comes
    from this environment.

    ``settings`` are those of the users' servers, ``service`` those of a service ``agent`` for all users; without them
    there is no service. The user ``root`` administers the hub.
    """

    def __init__(
        self,
        directory: Path,
        python: Path,
        script: list[dict[str, Any]],
        settings: Mapping[str, str],
        service: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._python = python
        self._script = script
        self._settings = settings
        self._service = service
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{free_port()}/"
        self._inside = f"http://127.0.0.1:{free_port()}"

    @property
    def log(self) -> Path:
        return self._directory / "hub.log"

    async def __aenter__(self) -> Hub:
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(self._directory), PROXY]
        subprocess.run(install, check=True, capture_output=True)
        (self._directory / "script.json").write_text(json.dumps(self._script))
        config = self._directory / "jupyterhub_config.py"
        config.write_text(self._configuration())
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._python, "-m", "jupyterhub", "-f", str(config)],
                cwd=self._directory,
                stdout=output,
                stderr=output,
                env={name: value for name, value in os.environ.items() if not name.startswith("AGENT_KERNEL_")},
                start_new_session=True,
            )
        await self._until_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the hub, which stops its proxy and the servers of its users."""
        if self._process is not None and self._process.poll() is None:
            async with self._client() as http:
                (await http.post("hub/api/shutdown", json={"servers": True, "proxy": True})).raise_for_status()
            try:
                await asyncio.to_thread(self._process.wait, 20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        return not_none(self._process).pid

    @property
    def service_url(self) -> str:
        """The URL of the service ``agent`` at the proxy."""
        return f"{self.url}services/agent/"

    @property
    def inside_url(self) -> str:
        """The URL of the service, without the proxy."""
        return f"{self._inside}/services/agent/"

    def service_client(self, token: str, url: str = "") -> httpx.AsyncClient:
        """Return a client for paths like ``v1/models`` of the service."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=url or self.service_url, headers=headers, timeout=60, **PLAIN)

    async def new_user(self, name: str) -> None:
        """Add a user without a server."""
        async with self._client() as http:
            (await http.post(f"hub/api/users/{name}")).raise_for_status()

    async def new_token(self, name: str, **options: Any) -> dict[str, Any]:
        """Return the hub's description of a new token of a user: ``token``, ``id``."""
        async with self._client() as http:
            made = await http.post(f"hub/api/users/{name}/tokens", json={"note": "tests", **options})
        made.raise_for_status()
        return dict(made.json())

    async def revoke(self, name: str, token_id: str) -> None:
        async with self._client() as http:
            (await http.delete(f"hub/api/users/{name}/tokens/{token_id}")).raise_for_status()

    async def user(self, name: str) -> HubUser:
        """Start the server of a user."""
        home = self._directory / "homes" / name
        home.mkdir(parents=True)
        await self.new_user(name)
        user = HubUser(name, self.url, home, str((await self.new_token(name))["token"]))
        await self.start_server(name)
        return user

    async def start_server(self, name: str) -> None:
        async with self._client() as http:
            (await http.post(f"hub/api/users/{name}/server")).raise_for_status()
        await self.until_server(name, runs=True)

    async def until_server(self, name: str, *, runs: bool) -> None:
        """Wait until the server of a user runs, or until it does not. Asking the hub is no activity of that server."""
        end = time.monotonic() + START_S
        async with self._client() as http:
            while bool((await http.get(f"hub/api/users/{name}")).json()["servers"]) != runs:
                assert time.monotonic() < end, self.log.read_text()[-4000:]
                await asyncio.sleep(0.2)

    @contextmanager
    def culler(self, *options: str) -> Iterator[None]:
        """The culler that JupyterHub's documentation recommends, which stops servers that nobody uses."""
        command = [str(self._python), "-m", "jupyterhub_idle_culler", f"--url={self.url}hub/api", *options]
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, "JUPYTERHUB_API_TOKEN": SERVICE_TOKEN}
            )
        try:
            yield
            assert process.poll() is None, self.log.read_text()[-4000:]
        finally:
            process.terminate()
            process.wait(60)

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"token {SERVICE_TOKEN}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=START_S, **PLAIN)

    async def _until_up(self) -> None:
        end = time.monotonic() + START_S
        async with self._client() as http:
            while True:
                try:
                    if (await http.get("hub/api/")).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                assert not_none(self._process).poll() is None, self.log.read_text()[-4000:]
                assert time.monotonic() < end, self.log.read_text()[-4000:]
                await asyncio.sleep(0.2)

    def _configuration(self) -> str:
        paths = sysconfig.get_paths()
        environment = {
            "JUPYTER_PATH": f"{paths['data']}/share/jupyter",
            "JUPYTER_CONFIG_PATH": f"{paths['data']}/etc/jupyter",
            "PYTHONPATH": os.pathsep.join([str(ROOT), paths["purelib"]]),
            "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
            "AGENT_KERNEL_ENGINE": "scripted",
            "AGENT_KERNEL_SCRIPT": str(self._directory / "script.json"),
            **self._settings,
        }
        environment = {name: value.replace("SERVICE/", self.service_url) for name, value in environment.items()}
        port = int(re.findall(r":(\d+)/", self.url)[0])
        # Each user has a runtime folder of its own: a spawner's environment may be a function of the spawner.
        config = CONFIG.format(
            password=PASSWORD,
            port=port,
            hub_port=free_port(),
            proxy_port=free_port(),
            proxy=str(self._directory / "node_modules/.bin/configurable-http-proxy"),
            homes=str(self._directory / "homes"),
            singleuser=str(self._python.with_name("jupyterhub-singleuser")),
            start_s=START_S,
            environment=environment,
            token=SERVICE_TOKEN,
        )
        runtime = f"lambda spawner: f'{self._directory}/homes/{{spawner.user.name}}/runtime'"
        config += f"c.Spawner.environment['JUPYTER_RUNTIME_DIR'] = {runtime}\n"
        return config if self._service is None else config + self._service_configuration(self._service)

    def _service_configuration(self, settings: Mapping[str, str]) -> str:
        environment = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]]),
            "JUPYTER_CONFIG_DIR": str(self._directory / "service-config"),
            "AGENT_KERNEL_ENGINE": "scripted",
            "AGENT_KERNEL_SCRIPT": str(self._directory / "script.json"),
            "AGENT_KERNEL_DATA_DIR": str(self._directory / "service"),
            **settings,
        }
        return SERVICE.format(
            url=self._inside,
            command=[str(self._python), "-m", "agent_kernel", "serve", "--hub", "--json", "--log-level", "info"],
            environment=environment,
        )
