"""Tests cells that run again, with a store and without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.events import TurnVersion
from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import Sampling
from agent_kernel.core.session import MAIN, Branch, Owner, SessionKey, Turn
from agent_kernel.core.turn_request import Note
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, TurnRequest
from jupyter_ext.turns.turn_versions import ASKED, TurnVersions, fingerprint
from tests.narrowing import not_none
from tests.scripted import python
from tests.turns import CancelledAt, Recorder

KEY = SessionKey("local", "s")


class Cells:
    """The cells of one notebook, run through ``TurnVersions`` as the server does."""

    def __init__(self, script: Sequence[dict[str, Any]] = ({"text": "Yes.", "loop": True},)) -> None:
        self.store = MemoryStore()
        self.versions = TurnVersions(self.store)
        self.engine = ScriptedEngine(list(script))

    async def ask(self, cell: str, prompt: str, **more: Any) -> TurnVersion | None:
        """Run the cell and return the version that its turn became; None if the turn was appended at the end."""
        request = TurnRequest(prompt, cell=cell, **more)
        asked = fingerprint(request, "m")
        agent = Agent(self.store, self.engine, KEY, [Recorder()], metadata={ASKED: asked})
        async with self.versions.open_branch(KEY, cell, asked) as version:
            await agent.run(request)
        return version

    async def prompts(self, branch: str | None = None) -> list[str]:
        return [
            item.message.text for item in await self.store.latest(KEY, branch=branch) if item.message.role == "user"
        ]

    async def stored(self, cell: str, prompt: str, alive: Sequence[str] = (), **more: Any) -> Turn | None:
        request = TurnRequest(prompt, cell=cell, **more)
        return await self.versions.find_valid_answer(KEY, cell, fingerprint(request, "m"), alive)


async def test_a_cell_that_has_never_run_goes_on_at_the_end() -> None:
    cells = Cells()
    assert await cells.ask("a", "one") is None
    assert await cells.ask("b", "two") is None
    assert await cells.prompts() == ["one", "two"]
    assert [branch.name for branch in await cells.store.branches(KEY)] == [MAIN]


async def test_the_newest_cell_asked_again_takes_the_place_of_its_turn_and_the_old_one_stays() -> None:
    cells = Cells()
    await cells.ask("a", "one")
    await cells.ask("b", "two")
    version = not_none(await cells.ask("b", "two, but better"))
    assert (version.number, version.count, version.kept_on, version.later, version.changed) == (2, 2, MAIN, 0, True)
    assert await cells.prompts() == ["one", "two, but better"]
    assert await cells.prompts(MAIN) == ["one", "two"]
    third = not_none(await cells.ask("b", "two, but better"))
    assert (third.number, third.count, third.kept_on, third.changed) == (3, 3, version.branch, False)


async def test_a_cell_further_up_leaves_the_later_turns_on_the_old_branch() -> None:
    cells = Cells()
    for cell, prompt in (("a", "one"), ("b", "two"), ("c", "three")):
        await cells.ask(cell, prompt)
    version = not_none(await cells.ask("a", "uno"))
    assert (version.kept_on, version.later) == (MAIN, 2)
    assert await cells.prompts() == ["uno"]
    assert await cells.ask("b", "two") is None, "its turn is on the old branch: here it is new"
    assert await cells.prompts() == ["uno", "two"]
    assert await cells.prompts(MAIN) == ["one", "two", "three"]
    await cells.store.switch(KEY, MAIN)
    again = not_none(await cells.ask("a", "uno"))
    assert (again.number, again.kept_on) == (3, MAIN)


@pytest.mark.parametrize("state", ["failed", "cancelled", "interrupted"])
async def test_a_turn_that_did_not_end_well_is_replaced_too(state: Any) -> None:
    cells, owner = Cells(), Owner.here()
    await cells.store.create(KEY)
    turn = await cells.store.open_turn(Turn("t", KEY, cell="a"), owner)
    await cells.store.close_turn(turn, owner, state, "so it was")
    await cells.ask("z", "in between")
    assert not_none(await cells.ask("a", "again")).replaces == "t"
    assert await cells.prompts() == ["again"]


async def test_a_turn_that_saved_nothing_leaves_no_branch_behind() -> None:
    cells = Cells()
    await cells.ask("a", "one")
    async with cells.versions.open_branch(KEY, "a", "other") as version:
        session = not_none(await cells.store.info(KEY))
        assert session.branch == not_none(version).branch != MAIN
    assert [(branch.name, branch.current) for branch in await cells.store.branches(KEY)] == [(MAIN, True)]
    assert await cells.prompts() == ["one"]


async def test_a_session_that_is_busy_elsewhere_is_left_as_it_is() -> None:
    cells = Cells()
    await cells.ask("a", "one")
    other = Owner.here()
    turn = await cells.store.open_turn(Turn("elsewhere", KEY), other)
    with pytest.raises(SessionBusy):
        await cells.ask("a", "one")
    await cells.store.close_turn(turn, other, "committed")
    assert len(await cells.store.branches(KEY)) == 1


async def test_another_server_that_switches_branches_in_between_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Cells()
    await cells.ask("a", "one")
    await cells.store.branch(KEY, before=(await cells.store.turns(KEY))[0].id, name="elsewhere")
    await cells.store.switch(KEY, MAIN)
    branch = cells.store.branch

    async def late(key: SessionKey, *, before: str | None = None, name: str = "") -> Branch:
        await cells.store.switch(KEY, "elsewhere")
        return await branch(key, before=before, name=name)

    monkeypatch.setattr(cells.store, "branch", late)
    assert await cells.ask("a", "uno") is None, "there the cell has no turn"
    assert (await cells.prompts("elsewhere"), await cells.prompts(MAIN)) == (["uno"], ["one"])


async def test_wherever_it_is_cancelled_a_session_never_stays_on_an_empty_branch() -> None:
    steps = 1
    while True:
        cells = Cells()
        await cells.ask("a", "one")
        attempt = CancelledAt(cells.ask("a", "two"), steps)
        task = asyncio.ensure_future(attempt.run())
        await asyncio.wait([task])
        if attempt.suspensions < steps:
            assert not task.cancelled()
            break
        branches = await cells.store.branches(KEY)
        for branch in branches:
            assert branch.name == MAIN or branch.head > branch.since, f"empty after {steps} steps"
        assert await cells.prompts(MAIN) == ["one"]
        assert await cells.prompts() in (["one"], ["two"])
        steps += 1
    assert steps > 5


async def test_the_stored_answer_holds_for_the_same_question_alone() -> None:
    cells = Cells()
    more: dict[str, Any] = {"notes": (Note("Variables", "df: 3 rows"),), "media": (Media.of("image/png", b"x"),)}
    await cells.ask("a", "one", **more)
    found = not_none(await cells.stored("a", "one", **more))
    assert await cells.stored("a", "uno", **more) is None
    assert await cells.stored("b", "one", **more) is None
    for change in (
        {"notes": (Note("Variables", "df: 4 rows"),)},
        {"media": (Media.of("image/png", b"y"),)},
        {"where": "live"},
        {"permission": "deny"},
        {"sampling": Sampling(temperature=1.0)},
        {"max_tool_rounds": 1},
        {"model": "another"},
    ):
        assert await cells.stored("a", "one", **{**more, **change}) is None, change
    again = await cells.stored("a", "one", **more, answers=frozenset({"*"}), epoch="another life")
    assert again == found, "who answers questions and which kernel it is do not count"


async def test_no_stored_answer_of_a_turn_that_failed_or_is_on_another_branch_or_behind_a_change() -> None:
    cells = Cells([{"fault": "no luck", "when": "bad"}, {"text": "Yes.", "loop": True}])
    await cells.ask("a", "bad")
    assert await cells.stored("a", "bad") is None
    await cells.ask("b", "two")
    await cells.ask("c", "three")
    assert await cells.stored("c", "three") is not None
    await cells.ask("b", "two, changed")
    assert await cells.stored("c", "three") is None
    await cells.store.switch(KEY, MAIN)
    assert await cells.stored("c", "three") is not None


async def test_code_that_ran_in_the_kernel_holds_while_its_variables_are_there() -> None:
    cells = Cells([{"calls": [python("x = 1")]}, {"text": "Done.", "loop": True}])
    await cells.ask("a", "set x", where="live")
    turn = (await cells.store.turns(KEY))[0].id
    assert await cells.stored("a", "set x", where="live") is None
    assert await cells.stored("a", "set x", alive=[turn], where="live") is not None
    await cells.ask("b", "say something", where="live")
    assert await cells.stored("b", "say something", where="live") is not None, "it ran nothing"


def test_other_files_given_or_asked_for_are_another_question() -> None:
    asked = TurnRequest("plot it", inputs=("file-1",), outputs=(RequestedFile("a.png"),))
    others = [
        replace(asked, inputs=("file-2",)),
        replace(asked, inputs=()),
        replace(asked, outputs=(RequestedFile("b.png"),)),
        replace(asked, outputs=()),
    ]
    assert len({fingerprint(request, "m") for request in (asked, *others)}) == 5
    assert fingerprint(replace(asked, outputs=(RequestedFile("./a.png"),)), "m") == fingerprint(asked, "m")
