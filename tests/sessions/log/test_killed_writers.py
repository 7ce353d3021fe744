"""Four processes write to one session and are killed at random moments. Tests that no acknowledged record is lost,
duplicated or torn.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.core.messages import Message, user
from agent_kernel.core.session import Item, Turn
from agent_kernel.sessions.store.store_url import open_store
from tests.sessions.log.conftest import SERVERS
from tests.sessions.log.writer import KEY, record

pytestmark = pytest.mark.stores
ROOT = Path(__file__).parents[3]
WRITERS = 4
KILLS = int(os.environ.get("AGENT_KERNEL_TEST_KILLS", "8"))
MANY_KILLS = 100
SEED = 20_261_125
STORES = ("sqlite", "postgresql", "redis")


class Writer:
    """One writing process. After a kill, ``start`` starts another one with a new name."""

    def __init__(self, url: str, slot: int, directory: Path) -> None:
        self._url, self._slot, self._directory = url, slot, directory
        self.acknowledged: dict[str, int] = {}
        self.started = 0
        self.start()

    def start(self) -> None:
        self.name = f"w{self._slot}.{self.started}"
        self.started += 1
        self._log = self._directory / self.name
        command = [sys.executable, "-m", "tests.sessions.log.writer", self._url, self.name]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=out)

    def has_written(self) -> bool:
        """Return whether a record of each kind was acknowledged. Fails if the process ended by itself."""
        assert self._process.poll() is None, "a writer ended by itself"
        return self._log.read_bytes().count(b"\n") > 1

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        lines = self._log.read_text().splitlines(keepends=True)
        whole = [int(line) for line in lines if line.endswith("\n")]  # the last line may be torn
        assert whole == [*range(len(whole))]
        self.acknowledged[self.name] = len(whole)


@pytest.fixture(params=[*STORES, "mongodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'sessions.db'}"
    server = request.getfixturevalue(SERVERS[request.param])
    fresh: str = server.fresh()
    return fresh


async def test_killed_writers_lose_double_and_tear_nothing(url: str, tmp_path: Path) -> None:
    await kill_and_check(url, tmp_path, KILLS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("url", STORES, indirect=True)
async def test_a_hundred_killed_writers_lose_double_and_tear_nothing(url: str, tmp_path: Path) -> None:
    await kill_and_check(url, tmp_path, MANY_KILLS)


async def kill_and_check(url: str, directory: Path, kills: int) -> None:
    began, draw = time.monotonic(), random.Random(SEED)
    writers = [Writer(url, slot, directory) for slot in range(WRITERS)]
    try:
        for left in range(kills, 0, -1):
            writer = wait_for(lambda: [one for one in writers if one.has_written()], draw)
            time.sleep(draw.uniform(0, 0.05))
            writer.kill()
            if left > 1:
                writer.start()
    finally:
        for writer in writers:
            writer.kill()
    acknowledged = {name: count for writer in writers for name, count in writer.acknowledged.items()}
    turns, unacknowledged = await check(url, acknowledged)
    scheme, seconds = url.partition(":")[0], time.monotonic() - began
    print(
        f"{scheme}: {kills} kills of {WRITERS} writers in {seconds:.0f} s, {sum(acknowledged.values()):,} records "
        f"acknowledged and all stored once, {turns - sum(acknowledged.values())} turns without an acknowledgement, "
        f"{unacknowledged} of them complete"
    )


def wait_for(ready: Callable[[], list[Writer]], draw: random.Random) -> Writer:
    deadline = time.monotonic() + 120
    while not (writers := ready()):
        assert time.monotonic() < deadline, "no writer writes"
        time.sleep(0.005)
    return draw.choice(writers)


async def check(url: str, acknowledged: dict[str, int]) -> tuple[int, int]:
    """Check the session. Return (number of turns, number of complete turns that were not acknowledged)."""
    async with aclosing(open_store(url)) as store:
        await store.recover()
        turns, items = await store.everything(KEY)
        assert [item.seq for item in items] == [*range(1, len(items) + 1)]
        numbers = defaultdict(list)
        grouped: dict[str, list[Item]] = {turn.id: [] for turn in turns}
        for item in items:
            grouped[item.turn].append(item)
        for turn in turns:
            if is_complete(turn, grouped[turn.id]):
                name, _, number = grouped[turn.id][0].message.text.partition(" ")
                numbers[name].append(int(number))
        unacknowledged = 0
        for name, count in acknowledged.items():
            # In order, none twice; the one that was being written may be there without its acknowledgement.
            assert numbers[name] in ([*range(count)], [*range(count + 1)])
            unacknowledged += len(numbers[name]) - count
        assert numbers.keys() <= acknowledged.keys()
        assert await store.verify() == []
        await store.add_messages(KEY, [user("and on")])
        return len(turns), unacknowledged


def is_complete(turn: Turn, items: list[Item]) -> bool:
    """Return whether the turn was committed with its whole record. Fails if the items are not complete, adjacent
    batches, or if a call has no result.
    """
    assert [item.seq for item in items] == [*range(turn.since + 1, turn.since + 1 + len(items))]
    if items:
        expected = record(items[0].message.text)
        texts = [message.text for message in expected]
        assert items[0].message.media[0].hash == expected[0].media[0].hash
    if turn.state == "committed":
        assert [item.message.text for item in items] == texts
        return True
    assert turn.state == "interrupted"
    written = [item.message for item in items if item.message.status != "interrupted"]
    assert [message.text for message in written] == (texts[: len(written)] if items else [])
    assert len(written) in (0, 2, 3, 5)
    assert len(items) in (0, 4, 5)
    return False


@pytest.mark.parametrize(
    ("written", "acknowledged"),
    [
        ([record("w 0")], 2),  # lost
        ([record("w 0"), record("w 0")], 1),  # doubled
        ([record("w 1"), record("w 0")], 2),  # out of order
        ([record("w 0")[:4]], 0),  # torn
        ([[*record("w 0")[:4], *record("w 1")[4:]]], 0),  # mixed
    ],
)
async def test_the_check_finds_what_is_lost_doubled_and_torn(
    tmp_path: Path, written: list[list[Message]], acknowledged: int
) -> None:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    store = open_store(url)
    for messages in written:
        await store.add_messages(KEY, messages)
    await store.aclose()
    with pytest.raises(AssertionError):
        await check(url, {"w": acknowledged})
