"""Tests merging: two versions of a session that diverged become one session with the branches of both."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.contract_tests.fixtures import calls, result
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import export, parse
from agent_kernel.sessions.export.transcript_merge import merge_transcripts
from agent_kernel.sessions.store.memory import MemoryStore

KEY = SessionKey("local", "s1")


class Side:
    """A store with one version of the session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = MemoryStore()
        self._count = 0

    async def say(self, text: str = "") -> None:
        self._count += 1
        said = text or f"{self.name} {self._count}"
        turn = Turn(f"{self.name}-{self._count}", KEY)
        await self.store.add_turn(turn, [user(said), calls("c1"), result("c1", said), assistant(f"to {said}")])

    async def grow(self, chance: random.Random) -> None:
        match chance.randrange(4):
            case 0:
                turns = [turn.id for turn in await self.store.turns(KEY)]
                await self.store.branch(KEY, before=chance.choice([None, *turns]))
            case 1:
                branches = await self.store.branches(KEY)
                if branches:
                    await self.store.switch(KEY, chance.choice(branches).name)
            case _:
                await self.say()

    async def take(self, version: Transcript) -> None:
        await self.store.restore(version, version.blobs)

    async def version(self) -> Transcript:
        read = await read_snapshot(self.store, KEY)
        assert read is not None
        return read


@pytest.fixture
async def sides() -> AsyncIterator[tuple[Side, Side, Side]]:
    made = Side("base"), Side("ours"), Side("theirs")
    yield made
    for side in made:
        await side.store.aclose()


def conversations(whole: Transcript) -> dict[str, list[Message]]:
    """Return the messages of each branch."""
    names = [branch.name for branch in whole.branches] or [whole.session.branch]
    return {name: [item.message for item in whole.select_branch(name)[1]] for name in names}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("has_base", [True, False])
async def test_every_branch_of_both_sides_is_in_the_merged_session(
    sides: tuple[Side, Side, Side], seed: int, has_base: bool
) -> None:
    chance = random.Random(seed)
    base, ours, theirs = sides
    await base.say()
    for _ in range(chance.randrange(8)):
        await base.grow(chance)
    start = await base.version()
    for side in (ours, theirs):
        await side.take(start)
        for _ in range(chance.randrange(8)):
            await side.grow(chance)
    mine, other = await ours.version(), await theirs.version()
    merged = merge_transcripts(start if has_base else None, mine, other)
    assert parse(export(merged, inline_bytes=None).document) == merged
    assert {turn.id for turn in merged.turns} == {turn.id for turn in (*mine.turns, *other.turns)}
    assert len({item.seq for item in merged.items}) == len(merged.items)
    there = conversations(merged)
    for said in (*conversations(mine).values(), *conversations(other).values()):
        begins = [messages[: len(said)] == said for messages in there.values()]
        assert any(begins), "a conversation of one side is in the merged session, from its beginning"
    back = merge_transcripts(start if has_base else None, other, mine)
    assert back.session.key == merged.session.key or merged in (mine, other)
    again = merge_transcripts(mine, merged, mine)
    assert again == merged, "a version that contains the other is the result"


async def test_two_sides_that_went_on_with_one_branch_end_as_two_branches(sides: tuple[Side, Side, Side]) -> None:
    base, ours, theirs = sides
    await base.say("first")
    start = await base.version()
    for side in (ours, theirs):
        await side.take(start)
        await side.say()
    merged = merge_transcripts(start, await ours.version(), await theirs.version())
    said = {name: [one.text for one in all if one.role == "user"] for name, all in conversations(merged).items()}
    assert said == {"main": ["first", "ours 1"], "branch-2": ["first", "theirs 1"]}
    assert merged.session.branch == "main"
    assert merged.session.key.id not in ("s1", ""), "no store takes it for the version that it has"


async def test_a_side_that_only_waited_gets_the_version_of_the_other(sides: tuple[Side, Side, Side]) -> None:
    base, _, theirs = sides
    await base.say()
    start = await base.version()
    await theirs.take(start)
    await theirs.say()
    grown = await theirs.version()
    assert merge_transcripts(start, start, grown) == grown
    assert merge_transcripts(start, grown, start) == grown


async def test_outputs_that_one_side_cleared_and_turns_that_ours_removed_stay_so(
    sides: tuple[Side, Side, Side],
) -> None:
    base, ours, theirs = sides
    await base.say("secret")
    await base.say("removed")
    start = await base.version()
    await ours.take(start)
    await theirs.take(start)
    assert await theirs.store.clear_outputs(KEY, ["base-1"], "cleared")
    while len((await ours.version()).turns) > 1:
        await ours.store.pop(KEY)
    await ours.say()
    merged = merge_transcripts(start, await ours.version(), await theirs.version())
    assert [item.message.text for item in merged.items if item.message.role == "tool"] == ["cleared", "ours 1"]
    assert {turn.id for turn in merged.turns} == {"base-1", "ours-1"}


async def test_a_title_that_one_side_changed_is_taken_from_it(sides: tuple[Side, Side, Side]) -> None:
    base, ours, theirs = sides
    await base.say()
    start = await base.version()
    for side in (ours, theirs):
        await side.take(start)
        await side.say()
    await theirs.store.rename(KEY, "theirs")
    merged = merge_transcripts(start, await ours.version(), await theirs.version())
    assert merged.session.title == "theirs"


async def test_sessions_without_a_common_turn_and_running_turns_are_refused(sides: tuple[Side, Side, Side]) -> None:
    base, ours, _ = sides
    await base.say()
    await ours.say()
    one, other = await base.version(), await ours.version()
    with pytest.raises(InvalidRequest, match="no turn in common"):
        merge_transcripts(None, one, other)
    running = replace(one, turns=tuple(replace(turn, state="open") for turn in one.turns))
    with pytest.raises(InvalidRequest, match="still running"):
        merge_transcripts(None, one, running)
    moved = replace(one, items=tuple(replace(item, seq=item.seq + 1) for item in one.items))
    with pytest.raises(InvalidRequest, match="differently"):
        merge_transcripts(None, one, moved)
