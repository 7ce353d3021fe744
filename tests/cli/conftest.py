"""Fixtures: the command in this process, on the test's own data directory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agent_kernel.cli import main
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.cli.served_clients import SCRIPT, Serve
from tests.served import Served

T = TypeVar("T")


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Command:
    data: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Ended:
        self.capture.readouterr()
        status = main([*arguments])
        out, err = self.capture.readouterr()
        return Ended(status, out, err)

    def on_store(self, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
        """Run ``work`` on the session store in the data directory, as a server would."""

        async def done() -> T:
            async with aclosing(SqliteStore(self.data / "sessions.db")) as store:
                return await work(store)

        return asyncio.run(done())


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("AGENT_KERNEL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AGENT_KERNEL_CACHE_DIR", str(tmp_path / "cache"))
    return Command(tmp_path / "data", capsys)


@pytest.fixture
def scripted(
    command: Command, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command with the scripted engine, which plays the SCRIPT of the test's module."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(request.module.SCRIPT))
    monkeypatch.setenv("AGENT_KERNEL_ENGINE", "scripted")
    monkeypatch.setenv("AGENT_KERNEL_SCRIPT", str(script))
    return command


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A function ``serve(*options, name=..., **fields of Served)`` that returns a server which is not yet started."""
    made: list[Served] = []

    def make(*options: str, name: str = "served", **fields: Any) -> Served:
        one = Served(tmp_path / name, fields.pop("script", SCRIPT), options, **fields)
        made.append(one)
        return one

    yield make
    for one in made:
        one.sweep()
