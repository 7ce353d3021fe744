"""``agent-kernel serve`` in its own process, as a supervisor runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.server import PLAIN, ROOT, START_S, STOP_S, Json

PRIVATE = ("AGENT_KERNEL_", "JUPYTER", "OPENAI_", "ANTHROPIC_")


@dataclass
class Served:
    """A served process. ``started`` is its line of JSON. ``options`` are those of the command, ``env`` is added to a
    minimal environment.
    """

    directory: Path
    script: Sequence[Json]
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    started: Json = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.directory / "serve.log"

    @property
    def url(self) -> str:
        return str(self.started["url"])

    @property
    def token(self) -> str:
        return Path(self.started["token_file"]).read_text().strip()

    def begin(
        self, *, command: Sequence[str] = (), stdout: int = subprocess.PIPE, as_json: bool = True
    ) -> subprocess.Popen[str]:
        """Start the process without waiting for it. ``command`` precedes the interpreter."""
        self.sweep()
        self.directory.mkdir(exist_ok=True)
        (self.directory / "script.json").write_text(json.dumps(list(self.script)))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
        own = {
            "AGENT_KERNEL_SCRIPT": str(self.directory / "script.json"),
            "AGENT_KERNEL_DATA_DIR": str(self.directory / "data"),
            "JUPYTER_CONFIG_DIR": str(self.directory / "config"),
            "PYTHONPATH": str(ROOT),
        }
        serve = (
            sys.executable,
            "-m",
            "agent_kernel",
            "serve",
            "--engine",
            "scripted",
            *(("--json",) if as_json else ()),
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *serve, *(() if "--port" in self.options else ("--port", "0")), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                text=True,
                env={**inherited, **own, **self.env},
                cwd=self.directory,
                start_new_session=True,
            )
        return self.process

    def start(self, *, command: Sequence[str] = ()) -> Served:
        process = self.begin(command=command)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"it did not start: {process.wait(START_S)}\n{self.log.read_text()[-4000:]}")
        self.started = json.loads(line)
        return self

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **PLAIN)

    def nobody(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **PLAIN)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the process and return its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def until_logged(self, text: str) -> None:
        until = time.monotonic() + START_S
        while text not in self.log.read_text():
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self.sweep()

    def sweep(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait(STOP_S)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def everything(self) -> bytes:
        """Return everything that the process wrote, except the file of its token."""
        token = Path(self.started["token_file"]) if self.started.get("token_file") else None
        files = [path for path in self.directory.rglob("*") if path.is_file() and path != token]
        return b"".join(path.read_bytes() for path in files) + json.dumps(self.started).encode()


def ended(process: subprocess.Popen[str]) -> Any:
    """Wait for a process that ends by itself. Return (exit status, stdout)."""
    out, _ = process.communicate(timeout=START_S)
    return process.returncode, out
