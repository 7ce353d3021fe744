"""Starts a temporary Jupyter server on a free loopback port, and stops it with all processes that it started."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

START_S = 60.0
"""Seconds to wait for the server to start. Importing Jupyter from a slow disk takes seconds; a server that takes longer
than this is considered stuck."""
STOP_S = 20.0
CALL_S = 120.0
MESSAGE_CHARS = 500
LOG_LINES = 15


class ServerFailed(Exception):
    """Raised if the server ended, did not answer in time, or refused a request. If the server did not start, the
    message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class TemporaryServer:
    """A running server, with methods that call its routes. ``folder`` is the directory of its notebooks."""

    url: str
    token: str
    folder: Path

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call a route such as ``api/kernels`` and return its JSON answer; None if the answer has no body. Raises
        ServerFailed."""
        try:
            response = await self._fetch(method, path, body)
        except (HTTPClientError, OSError) as error:
            raise ServerFailed(f"{method} {path}: {error}") from error
        if response.code >= 400:
            text = response.body.decode(errors="replace")[:MESSAGE_CHARS]
            raise ServerFailed(f"{method} {path}: status {response.code}: {text}")
        return json.loads(response.body) if response.body else None

    async def status(self, path: str) -> int:
        """Return the HTTP status of a GET request for ``path``. Raises OSError if no server listens at the address."""
        return (await self._fetch("GET", path, None)).code

    async def _fetch(self, method: str, path: str, body: Any) -> HTTPResponse:
        request = HTTPRequest(
            self.url + path,
            method,
            headers={**self.headers, "Content-Type": "application/json"},
            body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True,
            request_timeout=CALL_S,
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)


@asynccontextmanager
async def jupyter_server(
    folder: Path,
    log: Path,
    python: str = sys.executable,
    env: Mapping[str, str] = os.environ,
    options: Sequence[str] = (),
) -> AsyncIterator[TemporaryServer]:
    """Serve ``folder``, with ``options`` added to the command line. Sessions are stored in ``folder/.data``, so that a
    run never continues an earlier one. Raises ServerFailed."""
    token, data = secrets.token_hex(24), folder / ".data"
    command = [python, "-m", "jupyter_ext.headless.free_port_server", "--no-browser", "--ip=127.0.0.1"]
    # The data directory is also passed as an option, because a value in the user's configuration files would override
    # the environment variable.
    command += [f"--ServerApp.root_dir={folder}", f"--AgentKernel.data_dir={data}", *options]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    runtime = data / "runtime"
    own = {"JUPYTER_TOKEN": token, "AGENT_KERNEL_DATA_DIR": str(data), "JUPYTER_RUNTIME_DIR": str(runtime)}
    with log.open("wb") as sink:
        # The server gets its own process group, so that Ctrl-C in the terminal reaches only this process, which then
        # stops the server in an orderly way.
        # The pipe tells the server that this process has ended, even if it was killed.
        process = await asyncio.create_subprocess_exec(
            *command, env={**env, **own}, stdin=PIPE, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        yield await _wait_until_ready(process, runtime / f"jpserver-{process.pid}.json", token, folder, log)
    finally:
        await _stop(process)


async def _wait_until_ready(
    process: asyncio.subprocess.Process, information: Path, token: str, folder: Path, log: Path
) -> TemporaryServer:
    """Wait until the server has written its ``information`` file and the extension answers. Raises ServerFailed."""
    for _ in range(int(START_S / 0.1)):
        if process.returncode is not None:
            raise ServerFailed(f"The Jupyter server ended with code {process.returncode}.\n{_tail(log)}")
        with suppress(HTTPClientError, OSError, ValueError):  # ValueError: the file is not complete yet
            server = TemporaryServer(_read_url(information), token, folder)
            status = await server.status("agent/v1/health")
            if status == 200:
                return server
            if status == 404:
                raise ServerFailed(f"The server runs without the agent-kernel extension.\n{_tail(log)}")
        await asyncio.sleep(0.1)
    raise ServerFailed(f"The Jupyter server did not answer within {START_S:.0f} s.\n{_tail(log)}")


def _read_url(information: Path) -> str:
    return str(json.loads(information.read_bytes())["url"])


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, and after STOP_S seconds SIGKILL, to the whole process group."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
