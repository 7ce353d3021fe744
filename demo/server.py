"""A temporary Jupyter server on a free loopback port, stopped with everything it started."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_S = 60.0
"""A cold import of Jupyter on a slow disk takes seconds; after a minute it is considered stuck."""
STOP_S = 20.0


class ServerFailed(Exception):
    """The server ended or did not answer in time; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}


@asynccontextmanager
async def jupyter_server(
    folder: Path, log: Path, python: str = sys.executable, env: Mapping[str, str] = os.environ
) -> AsyncIterator[Server]:
    """Serve ``folder``. Sessions are stored in ``folder/.data``, so that a run never continues an earlier one. Raises
    ServerFailed."""
    port = free_port()
    server = Server(f"http://127.0.0.1:{port}/", secrets.token_hex(24))
    command = [python, "-m", "jupyter_server", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    own = {"JUPYTER_TOKEN": server.token, "AGENT_KERNEL_DATA_DIR": str(folder / ".data")}
    with log.open("wb") as sink:
        # Its own process group: Ctrl-C in the terminal reaches us alone, and we stop the server in order.
        process = await asyncio.create_subprocess_exec(
            *command, env={**env, **own}, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        await answering(server, process, log)
        yield server
    finally:
        await stop(process)


async def answering(server: Server, process: asyncio.subprocess.Process, log: Path) -> None:
    """Wait until the extension answers. Raises ServerFailed."""
    async with httpx.AsyncClient(base_url=server.url, headers=server.headers, trust_env=False) as http:
        for _ in range(int(START_S / 0.1)):
            if process.returncode is not None:
                raise ServerFailed(f"The Jupyter server ended with code {process.returncode}.\n{tail(log)}")
            try:
                response = await http.get("agent/v1/health")
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            if response.status_code == httpx.codes.OK:
                return
            if response.status_code == httpx.codes.NOT_FOUND:
                raise ServerFailed(f"The server runs without the agent-kernel extension.\n{tail(log)}")
            await asyncio.sleep(0.1)
    raise ServerFailed(f"The Jupyter server did not answer within {START_S:.0f} s.\n{tail(log)}")


async def stop(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, and after STOP_S seconds SIGKILL, to the whole process group."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
