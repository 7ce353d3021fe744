"""Tests that random histories of two servers on one log agree with a simple model, step by step.

AGENT_KERNEL_TEST_HISTORIES is the number of histories for each log in a database, and the minimum for one in memory;
history n is drawn from the seed n.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_kernel.sessions.log.log_store import Append, Entry, LogConflict, LogStore, Stream
from tests.sessions.log.conftest import SERVERS, connect_again
from tests.sessions.log.test_log_store import everything

HISTORIES, IN_MEMORY = int(os.environ.get("AGENT_KERNEL_TEST_HISTORIES", "3")), 60
STEPS = 40
NAMESPACES, SESSIONS = ("a", "ü/🙂", "b:1"), ("", "s", "1:s", "%s'")


@dataclass
class Model:
    """The model of a log, made of lists and dicts."""

    entries: list[Entry] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    heads: dict[Stream, int] = field(default_factory=dict)
    commits: dict[str, tuple[list[Append], dict[Stream, int]]] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def commit(self, id: str, appends: list[Append]) -> dict[Stream, int] | None:
        """Commit and return the positions, or None for a conflict."""
        if id in self.commits:
            return self.commits[id][1]
        if any(self.heads.get((one.namespace, one.session), 0) != one.expect for one in appends):
            return None
        positions = {}
        for one in appends:
            if one.body is not None:
                stream = one.namespace, one.session
                place = self.last[one.namespace] = self.last.get(one.namespace, 0) + 1
                positions[stream] = self.heads[stream] = place
                if one.replaces:
                    self.entries = [entry for entry in self.entries if (entry.namespace, entry.session) != stream]
                self.entries.append(Entry(one.namespace, place, one.session, one.replaces, one.body))
        self.commits[id] = appends, positions
        return positions

    def behind(self, after: dict[str, int]) -> list[Entry]:
        found = [entry for entry in self.entries if entry.position > after.get(entry.namespace, 0)]
        return sorted(found, key=lambda entry: (entry.namespace, entry.position))


class History:
    def __init__(self, seed: int, log: LogStore) -> None:
        self.draw = random.Random(seed)
        self.model = Model()
        self.logs = [log, connect_again(log)]

    def run(self) -> None:
        kinds = [self.commit] * 6 + [self.read] * 4 + [self.repeat, self.put, self.put, self.get, self.drop, self.leave]
        for _ in range(STEPS):
            self.draw.choice(kinds)(self.draw.choice(self.logs))
        for log in self.logs:
            self.compare(log, {})

    def commit(self, log: LogStore) -> None:
        streams = [(namespace, session) for namespace in NAMESPACES for session in SESSIONS]
        chosen = self.draw.sample(streams, self.draw.choice([1, 1, 1, 2, 3]))
        appends = [self.append(stream) for stream in chosen]
        self.write(log, f"commit {len(self.model.commits)} {self.draw.random()}", appends)

    def append(self, stream: Stream) -> Append:
        expect = self.model.heads.get(stream, 0)
        if self.draw.random() < 0.08:
            expect = max(0, expect + self.draw.choice([-1, 1]))
        size = self.draw.choice([0, 1, 20, 20, 300, 50_000])
        body = None if self.draw.random() < 0.1 else self.draw.randbytes(size)
        return Append(*stream, expect, body, body is not None and self.draw.random() < 0.2)

    def write(self, log: LogStore, id: str, appends: list[Append]) -> None:
        expected = self.model.commit(id, appends)
        try:
            assert log.commit(id, appends) == expected
        except LogConflict:
            assert expected is None

    def repeat(self, log: LogStore) -> None:
        """Repeat one of the last commits, on any server, as a writer does whose reply was lost."""
        written = [id for id, (_, positions) in self.model.commits.items() if positions]
        if written:
            id = self.draw.choice(written[-10:])
            self.write(log, id, self.model.commits[id][0])

    def read(self, log: LogStore) -> None:
        self.compare(log, {name: self.draw.randint(0, last) for name, last in self.model.last.items()})

    def compare(self, log: LogStore, after: dict[str, int]) -> None:
        found = everything(log, after)
        assert sorted(found, key=lambda entry: (entry.namespace, entry.position)) == self.model.behind(after)

    def put(self, log: LogStore) -> None:
        place = self.draw.choice(NAMESPACES), self.draw.choice("defg") * 64
        log.put_blob(*place, place[1].encode() * 700)
        self.model.blobs[place] = place[1].encode() * 700

    def get(self, log: LogStore) -> None:
        for letter in "defg":
            place = self.draw.choice(NAMESPACES), letter * 64
            assert log.get_blob(*place) == self.model.blobs.get(place)

    def drop(self, log: LogStore) -> None:
        places = [*self.model.blobs]
        named = set(self.draw.sample(places, self.draw.randint(0, len(places))))
        log.touch_blobs(NAMESPACES[0], [digest for namespace, digest in places if namespace == NAMESPACES[0]])
        assert log.drop_blobs(named) == 0, "all of them were just stored"
        freed = log.drop_blobs(named, -5)
        gone = [self.model.blobs.pop(place) for place in places if place not in named]
        # An encrypted medium is a little longer.
        assert 0 <= freed - sum(map(len, gone)) < 100 * len(gone) + 1

    def leave(self, log: LogStore) -> None:
        """Close the connection; half of the time, open a new one in its place."""
        log.close()
        if self.draw.random() < 0.5:
            self.logs[self.logs.index(log)] = connect_again(log)


@pytest.mark.timeout(3600)
def test_random_histories_agree_with_a_plain_model(make_log: Callable[[], LogStore], request: Any) -> None:
    is_in_memory = request.node.callspec.params["make_log"] not in SERVERS
    for seed in range(max(HISTORIES, IN_MEMORY) if is_in_memory else HISTORIES):
        history = History(seed, make_log())
        try:
            history.run()
        except Exception as error:
            error.add_note(f"The history of the seed {seed}.")
            raise
        finally:
            for log in history.logs:
                log.close()
