"""Tests what a page that watches a session is notified of, and how watching begins and ends."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from agent_kernel.notebook.panel import server_relay
from agent_kernel.notebook.panel.server_relay import SessionPoll
from agent_kernel.notebook.server_client import ServerClient

WAIT_S = 30.0
REST_S = 0.6


class Sessions:
    """A stand-in for the server that answers with its current rows."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []
        self.broken = False
        self.looks: queue.Queue[str] = queue.Queue()

    def begin(self, ids: str, *, running: bool = True) -> None:
        about = {"session": "s", "cell": "", "running": running, "state": "committed"}
        self.turns = [*self.turns, *({"turn": id, **about} for id in ids)]

    def call(self, method: str, path: str) -> Any:
        self.looks.put(path)
        if self.broken:
            raise KeyError("no answer of ours")
        if "limit=" not in path:
            return {"id": "s", "updated": len(self.turns), "turns": len(self.turns)}
        return {"turns": self.turns[-int(path.partition("limit=")[2]) :]}

    def looked(self) -> None:
        """Wait until the session was polled twice."""
        while not self.looks.empty():
            self.looks.get_nowait()
        for _ in range(2):
            self.looks.get(timeout=WAIT_S)

    def at_rest(self) -> None:
        """Wait until polling has stopped."""
        with contextlib.suppress(queue.Empty):
            while self.looks.get(timeout=REST_S):
                pass


class Told:
    def __init__(self) -> None:
        self._news: queue.Queue[tuple[str, str]] = queue.Queue()

    def __call__(self, content: Mapping[str, Any], buffers: Sequence[bytes] = ()) -> None:
        self._news.put((content["news"]["type"], content["news"]["turn"]))

    def next(self, count: int) -> list[tuple[str, str]]:
        return [self._news.get(timeout=WAIT_S) for _ in range(count)]


Begun = tuple[Sessions, Told, Callable[[], None]]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begun]:
    monkeypatch.setattr(server_relay, "EVERY_S", 0.01)
    sessions, told = Sessions(), Told()
    watched = SessionPoll(lambda: cast(ServerClient, sessions), told)
    yield sessions, told, lambda: watched.renew("v", "session:s")
    watched.close()


def test_turns_that_began_at_once_are_all_told(begun: Begun) -> None:
    sessions, told, renew = begun
    renew()
    sessions.looked()
    sessions.begin("abcde", running=False)
    assert told.next(10) == [(f"turn.{what}", id) for id in "abcde" for what in ("opened", "closed")]


def test_who_watches_again_after_a_long_time_is_told_anew_what_runs(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, told, renew = begun
    sessions.begin("a")
    monkeypatch.setattr(server_relay, "UNTIL_S", REST_S / 2)
    for _ in range(2):
        renew()
        assert told.next(1) == [("turn.opened", "a")]
        sessions.at_rest()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_ends_one_look_and_not_all_that_come(begun: Begun) -> None:
    sessions, told, renew = begun
    sessions.begin("a")
    sessions.broken = True
    renew()
    sessions.looks.get(timeout=WAIT_S)
    sessions.at_rest()
    sessions.broken = False
    renew()
    assert told.next(1) == [("turn.opened", "a")]
