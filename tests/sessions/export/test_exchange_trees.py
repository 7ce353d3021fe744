"""Tests that our own formats restore any tree of a session exactly, and other formats all that they can represent."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import (
    Media,
    Message,
    Text,
    ToolCall,
    assistant,
    replace_media_with_note,
    tool_result,
    user,
)
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export import jsonl
from agent_kernel.sessions.export.formats import markdown, mistralrs, notebook, openai_chat
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.formats.message_list import visible_messages
from agent_kernel.sessions.export.import_export import export_session, import_session
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import export, parse
from agent_kernel.sessions.store.memory import MemoryStore
from tests.narrowing import not_none
from tests.sessions.strategies import transcripts
from tests.sessions.talk import KEY

STEPS = 40
CALL = ToolCall("call-0", "python", {"code": "1"})


class Gardener:
    """Makes random changes to the tree of a session; a change that the store refuses has no effect."""

    def __init__(self, store: SessionStore, owner: Owner, seed: int) -> None:
        self._store = store
        self._owner = owner
        self._chance = random.Random(seed)
        self._count = 0

    async def step(self) -> None:
        self._count += 1
        deeds: list[Callable[[], Awaitable[object]]] = [
            self._turn,
            self._turn,
            self._branch,
            self._switch,
            lambda: self._store.pop(KEY),
            self._drop,
            self._ends_early,
            self._behind,
        ]
        with contextlib.suppress(AgentKernelError):
            await self._chance.choice(deeds)()

    async def _turn(self) -> None:
        chance, count = self._chance, self._count
        picture = Media.of("image/png", bytes([count]) * chance.choice([3, 40_000]))
        other = Media.of(chance.choice(["image/jpeg", "text/csv", "video/mp4"]), bytes([count, 1]))
        calls = [replace(CALL, id=f"call-{at}") for at in range(chance.choice([1, 1, 3]))]
        results = [
            tool_result(call, f"{count}: {call.id}", chance.choice(["success", "error"]), chance.choice([[], [other]]))
            for call in calls
        ]
        chance.shuffle(results)
        video = f"[video, 2 frames, 1.5 fps, frames 0 {count} of 60]"
        asked = Message("user", (picture, Text(video), picture, picture, Text(f"said {count}")))
        said = [chance.choice([asked, user(f"said {count}", [picture])]), assistant("", calls, "hm"), *results]
        answer = [assistant("one"), user("and?"), assistant("two")][: chance.randrange(4)]
        await self._store.add_turn(Turn(f"t{count}", KEY), [*said, *answer])

    async def _branch(self) -> None:
        turns = [turn.id for turn in await self._store.turns(KEY)]
        await self._store.branch(KEY, before=self._chance.choice([None, *turns]))

    async def _switch(self) -> None:
        await self._store.switch(KEY, self._chance.choice(await self._store.branches(KEY)).name)

    async def _drop(self) -> None:
        await self._store.drop_branch(KEY, self._chance.choice(await self._store.branches(KEY)).name)

    async def _ends_early(self) -> None:
        turn = await self._store.open_turn(Turn(f"t{self._count}", KEY), self._owner)
        if self._chance.random() < 0.5:
            await self._store.append(turn, self._owner, [user("wrong")], await self._head())
        await self._store.close_turn(turn, self._owner, self._chance.choice(["failed", "cancelled"]))

    async def _behind(self) -> None:
        _, items = await self._store.everything(KEY)
        turn = await self._store.open_turn(Turn(f"t{self._count}", KEY), self._owner)
        try:
            behind = self._chance.choice([0, *(item.seq for item in items if not item.message.calls)])
            await self._store.append_at(turn, self._owner, [user("edited")], await self._head(), behind=behind)
        finally:
            await self._store.close_turn(turn, self._owner, "committed")

    async def _head(self) -> int:
        session = not_none(await self._store.info(KEY))
        return session.head


@pytest.fixture
async def memory() -> AsyncIterator[SessionStore]:
    made = MemoryStore()
    yield made
    await made.aclose()


@pytest.mark.parametrize("seed", range(20))
async def test_a_tree_that_grew_at_random_comes_back_branch_by_branch(
    memory: SessionStore, owner: Owner, seed: int
) -> None:
    await memory.create(KEY)
    gardener = Gardener(memory, owner, seed)
    for _ in range(STEPS):
        await gardener.step()
    whole = not_none(await read_snapshot(memory, KEY))
    keeps_every_branch(whole)
    shows_every_message_once(whole)
    for format in ("agent-kernel", "jsonl"):
        there = SessionKey(format, KEY.id)
        document = (await export_session(memory, KEY, format)).document
        await import_session(memory, format, document, id=KEY.id, trusted=True)
        assert (await export_session(memory, there, format)).document == document
        assert await memory.branches(there) == await memory.branches(KEY)
        for branch in await memory.branches(KEY):
            items, turns = await memory.latest(KEY, branch=branch.name), await memory.turns(KEY, branch=branch.name)
            assert await memory.latest(there, branch=branch.name) == items
            shown = whole.select_branch(branch.name)
            assert ([turn.id for turn in shown[0]], list(shown[1])) == ([turn.id for turn in turns], items)


# ------------------------------------------------------------------------------------------------ every format

every_tree = given(transcripts())
often = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=40
)


def branches(whole: Transcript) -> list[str | None]:
    return [None, *(branch.name for branch in whole.branches)]


def rounds(said: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of each round in the order of its calls."""
    found: list[Message] = []
    order: list[str] = []
    for message in said:
        order = order if message.role == "tool" else [call.id for call in message.calls]
        found.append(message)
        if message.role == "tool":
            first = len(found) - 1
            while first and found[first - 1].role == "tool":
                first -= 1
            found[first:] = sorted(found[first:], key=lambda result: order.index(result.call_id or ""))
    return found


def simplify(message: Message, *, full: bool) -> tuple[Any, ...]:
    """Return what a format keeps of a message: ``full`` for the format of mistral.rs, otherwise for OpenAI's."""
    calls = [(call.id, call.name, dict(call.arguments)) for call in message.calls]
    if not full:
        pictures = message.role == "user" and [part for part in message.media if part.mime.startswith("image/")]
        said = (
            (message.text, tuple(message.media))
            if pictures and not others(message)
            else replace_media_with_note(message).text
        )
        return message.role, said, calls, message.call_id
    media = sorted((medium.mime, medium.hash, medium.size) for medium in message.media)
    return message.role, message.text, media, calls, message.call_id, message.reasoning, message.name, message.status


def others(message: Message) -> bool:
    return any(not medium.mime.startswith("image/") for medium in message.media)


def come(reader: Any, document: bytes) -> list[Message]:
    whole = reader.read(Fields(json.loads(document), "document"), "local")
    return [item.message for item in whole.items]


@often
@every_tree
def test_our_own_formats_bring_every_tree_back(whole: Transcript) -> None:
    namespace = whole.session.key.namespace
    assert parse(export(whole, inline_bytes=None).document, namespace) == whole
    assert jsonl.read(b"".join(jsonl.write(whole)).splitlines(keepends=True), namespace) == whole


@often
@every_tree
def test_mistralrs_form_brings_every_branch_back(whole: Transcript) -> None:
    keeps_every_branch(whole)


def keeps_every_branch(whole: Transcript) -> None:
    for branch in branches(whole):
        said = rounds(list(visible_messages(whole, branch, {})))
        document = mistralrs.write(whole, branch, {})
        back = come(mistralrs, document)
        assert [simplify(message, full=True) for message in back] == [simplify(message, full=True) for message in said]
        again = mistralrs.read(Fields(json.loads(document), "document"), "local")
        assert json.loads(mistralrs.write(again, None, {}))["messages"] == json.loads(document)["messages"]


@often
@every_tree
def test_openais_messages_bring_every_branch_back(whole: Transcript) -> None:
    for branch in branches(whole):
        bare = replace(whole, items=tuple(replace(item, message=without(item.message)) for item in whole.items))
        said = list(visible_messages(bare, branch, {}))
        back = come(openai_chat, openai_chat.write(bare, branch, {}))
        assert [simplify(message, full=False) for message in back] == [
            simplify(message, full=False) for message in said
        ]


def plain(message: Message) -> bool:
    """Return True if its media are pictures that a user sent, the only media that OpenAI's API accepts."""
    return message.role == "user" and not others(message)


def without(message: Message) -> Message:
    return message if plain(message) else replace(message, parts=tuple(p for p in message.parts if isinstance(p, Text)))


def mark_messages(whole: Transcript) -> Transcript:
    """Return the transcript with the number of each message as its text."""
    items = tuple(
        replace(item, message=replace(item.message, parts=(Text(f"said{item.seq}."), *item.message.media)))
        for item in whole.items
    )
    return replace(whole, items=items)


@often
@every_tree
def test_a_page_shows_every_message_of_every_branch_once(whole: Transcript) -> None:
    shows_every_message_once(whole)


def shows_every_message_once(whole: Transcript) -> None:
    whole = mark_messages(whole)
    items = [item for name in branches(whole) for item in whole.select_branch(name)[1]]
    everything = {item.seq for item in items if not item.message.hidden}
    page, _ = markdown.write(whole, None, beside=False)
    assert sorted(map(int, re.findall(r"said(\d+)\.", page))) == sorted(everything)
    for branch in branches(whole):
        alone, _ = markdown.write(whole, branch or whole.session.branch, beside=True)
        mine = [item.seq for item in whole.select_branch(branch)[1] if not item.message.hidden]
        assert list(map(int, re.findall(r"said(\d+)\.", alone))) == mine


@often
@every_tree
def test_a_notebook_has_every_question_of_its_branch(whole: Transcript) -> None:
    whole = mark_messages(whole)
    for branch in branches(whole):
        cells = json.loads(notebook.write(whole, branch, {}))["cells"]
        asked = [message.text for message in visible_messages(whole, branch, {}) if message.role == "user"]
        texts = [cell for cell in cells if cell["cell_type"] == "markdown" and cell["id"] != "missing"]
        assert ["".join(cell["source"]) for cell in texts] == asked
