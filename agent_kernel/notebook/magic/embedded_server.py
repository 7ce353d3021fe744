"""Implements ``%agent start``, which runs ``agent-kernel serve`` for this kernel alone. It is for kernels that no
Jupyter server with agent-kernel has started (VS Code, IPython).

The server is a child process on loopback. It holds one end of a pipe, so it ends when the kernel ends, even if the
kernel crashes.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.server_client import ServerClient

HELP = "start a server for this kernel alone, where no Jupyter server has agent-kernel; stop server stops it"
NEEDED = ("jupyter_server", "jupyter_ext")
START_S = 120.0
"""Time limit in seconds for the start of the server. It usually takes a few seconds, but longer on a slow disk."""
STOP_S = 20.0
LOOK_S = 0.2
TAIL = 1_500
"""Number of characters at the end of the server's log that are shown if the server does not start."""
NOT_HANDED_ON = ("AGENT_KERNEL_URL", "AGENT_KERNEL_ID", "AGENT_KERNEL_TOKEN", "JPY_PARENT_PID", "JPY_SESSION_NAME")
STARTED_EVENT = b'{"event": "started"'
"""The beginning of the line with which ``agent-kernel serve --json`` says where it listens."""
STARTED = (
    "Started a server for this kernel: {process}. It listens on this machine only ({address}), "
    "serves this kernel only, "
    "and ends when the kernel ends. The first turn loads a model. %agent stop server stops it."
)


class EmbeddedServer:
    """Runs at most one server for this kernel."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        """The log of the server, opened for reading. The server writes through a handle of its own, because an
        inherited handle shares its position."""
        self._server: ServerClient | None = None

    @property
    def server(self) -> ServerClient | None:
        """The client of the running server; None if no server is running."""
        return self._server if self._process is not None and self._process.poll() is None else None

    def start(self, print_line: Callable[[str], None]) -> dict[str, str]:
        """Start the server, wait until it answers, and return the environment variables that it sets for its kernels.
        Raises AgentError when it does not start."""
        if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
            raise AgentError(f"{sys.executable} has no {missing[0]}: install agent-kernel in that environment.")
        print_line("Starting a server for this kernel ...")
        try:
            kernel, token = f"own-{secrets.token_hex(8)}", secrets.token_urlsafe(32)
            self._begin(kernel, token)
            server = ServerClient(self._wait_for_url(), kernel, token)
            environment = self._read_environment(server)
        except BaseException:  # also on Ctrl-C: a server without an owner must not stay
            self.close()
            raise
        self._server = server
        print_line(STARTED.format(process=self._describe_process(), address=server.url))
        return environment

    def close(self) -> None:
        """Stop the server and wait until it has saved its state."""
        process, self._process, self._server = self._process, None, None
        if process is not None:
            atexit.unregister(self.close)
            with contextlib.suppress(OSError):
                if process.stdin:
                    process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            with contextlib.suppress(OSError):
                os.unlink(self._log.name)  # Windows does not remove open files, so this is done now
            self._log = None

    def _begin(self, kernel: str, token: str) -> None:
        notebook = front_end_notebook(self._shell)
        root = notebook.parent if notebook else Path.cwd()
        environment = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
        environment |= {
            "AGENT_KERNEL_ADOPTS": kernel,
            "AGENT_KERNEL_ADOPTS_TOKEN": token,
            "AGENT_KERNEL_ADOPTS_NOTEBOOK": notebook.name if notebook else "",
            # The server requires this token, but nobody uses it: only the kernel's token gives access.
            "JUPYTER_TOKEN": secrets.token_urlsafe(32),
        }
        with tempfile.NamedTemporaryFile(delete=False) as log:
            self._log = open(log.name, "rb")  # noqa: SIM115  stays open while the server writes to it
            with contextlib.suppress(OSError):
                os.unlink(log.name)
            self._process = subprocess.Popen(
                _command(root),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=root,
                start_new_session=True,  # Ctrl-C in a terminal is meant for the kernel
            )
        atexit.register(self.close)

    def _wait_for_url(self) -> str:
        """Wait until the server accepts requests, and return its address, which it prints then. Raises AgentError if
        the server ends or does not start within START_S seconds."""
        assert self._process is not None
        assert self._log is not None
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            ended = self._process.poll() is not None
            self._log.seek(0)
            for line in self._log.read().splitlines(keepends=True):
                if line.startswith(STARTED_EVENT) and line.endswith(b"\n"):
                    return f"{json.loads(line)['url']}/"
            if ended:
                raise AgentError(f"the server ended during its start:\n{self._tail()}")
            time.sleep(LOOK_S)
        raise AgentError(f"the server did not start within {START_S:.0f} s:\n{self._tail()}")

    def _read_environment(self, server: ServerClient) -> dict[str, str]:
        """Return the environment that the server gives to its kernels. Raises AgentError if the server answers with an
        error."""
        try:
            return dict(server.call("GET", "binding", timeout=START_S)["environment"])
        except AgentKernelError as error:
            raise AgentError(
                f"the server started, but answers requests with an error: {error}\n{self._tail()}"
            ) from None

    def _tail(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - TAIL))
        return self._log.read().decode(errors="replace").strip()

    def _describe_process(self) -> str:
        assert self._process is not None
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
            kb = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
            if kb:
                return f"process {self._process.pid}, {kb[0] / 1000:,.0f} MB now"
        return f"process {self._process.pid}"


def _command(root: Path) -> list[str]:
    """Return the command of a server that takes any free port and prints its address as JSON."""
    serve = (sys.executable, "-m", "agent_kernel", "serve", "--json")
    return [*serve, "--port", "0", "--root", str(root), "--drain", "0", "--log-level", "info"]


def front_end_notebook(shell: Any) -> Path | None:
    """Return the path of the notebook if the front end sets it in the kernel, as VS Code does."""
    file = shell.user_ns.get("__vsc_ipynb_file__")
    path = Path(file) if isinstance(file, str) else None
    return path if path is not None and path.suffix == ".ipynb" and path.is_file() else None
