"""Tests conversations of programs: what is added can be read again, with and without an event loop, with
every store.
"""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionBusy, SessionNotFound, StoreError
from agent_kernel.core.messages import ToolCall, assistant, tool_result, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, Turn
from agent_kernel.sessions import Chat, Sessions

DOCS = Path(__file__).parents[3] / "docs" / "python-sessions.md"


@pytest.fixture
def sessions(store: SessionStore) -> Sessions:
    return Sessions(store)


async def texts(chat: Chat) -> list[str]:
    return [message.text async for message in chat]


async def test_messages_are_read_in_the_order_in_which_they_were_added(sessions: Sessions) -> None:
    chat = sessions["support-42"]
    assert not await texts(chat)
    assert not await chat.last()
    await chat.add(user="Hello")
    await chat.add(assistant="Hi")
    await chat.add(user="More", assistant="Done")
    assert await texts(chat) == ["Hello", "Hi", "More", "Done"]
    assert [message.text for message in await chat.last(2)] == ["More", "Done"]
    assert await chat.last(4) == [user("Hello"), assistant("Hi"), user("More"), assistant("Done")]
    assert [session.key.id for session in await sessions.list()] == ["support-42"]


async def test_messages_with_calls_are_added_as_values(sessions: Sessions) -> None:
    call = ToolCall("c", "python", {"code": "1+1"})
    given = [user("What?"), assistant("", [call]), tool_result(call, "2", "success")]
    chat = sessions["s"]
    await chat.add(*given, assistant="It is 2.")
    assert [message async for message in chat] == [*given, assistant("It is 2.")]
    with pytest.raises(InvalidRequest):
        await chat.add(user("Again"), assistant("", [call]))
    with pytest.raises(InvalidRequest):
        await chat.add()
    assert len(await texts(chat)) == 4


async def test_hidden_messages_are_not_read_and_do_not_count(sessions: Sessions) -> None:
    chat = sessions["s"]
    await chat.add(user="one", assistant="two")
    await chat.add(*(user(f"note {number}", hidden=True) for number in range(30)), user="three")
    assert await texts(chat) == ["one", "two", "three"]
    assert [message.text for message in await chat.last(2)] == ["two", "three"]
    assert [message.text for message in await chat.last(9)] == ["one", "two", "three"]
    assert await chat.last(0) == []
    with pytest.raises(InvalidRequest):
        await chat.last(-1)


async def test_undo_removes_the_newest_question_with_its_answer(sessions: Sessions) -> None:
    chat = sessions["s"]
    assert await chat.undo() is None
    await chat.add(user="one", assistant="two")
    await chat.add(user="three")
    await chat.add(assistant="four")
    undone = await chat.undo()
    assert undone is not None
    assert (undone.prompt, undone.items) == ("three", 2)
    assert await texts(chat) == ["one", "two"]


async def test_a_fork_goes_its_own_way(sessions: Sessions) -> None:
    chat = sessions["s"]
    with pytest.raises(SessionNotFound):
        await chat.fork("copy")
    await chat.add(user="one", assistant="two")
    copy = await chat.fork("copy")
    await copy.add(user="three")
    assert (await texts(chat), await texts(copy)) == (["one", "two"], ["one", "two", "three"])
    with pytest.raises(Conflict):
        await chat.fork("copy")


async def test_a_conversation_is_cleared_found_and_deleted(sessions: Sessions) -> None:
    chat = sessions["s"]
    await chat.clear()
    await chat.add(user="the launch", assistant="is tomorrow")
    assert [hit.session.key for hit in await sessions.search("launch")] == [chat.key]
    await chat.clear()
    assert await texts(chat) == []
    assert await sessions.delete("s")
    assert not await sessions.delete("s")


async def test_namespaces_do_not_see_each_other(store: SessionStore) -> None:
    await Sessions(store)["s"].add(user="ours")
    hers = Sessions(store, "ann")
    assert not await texts(hers["s"])
    assert not await hers.list()
    assert not await hers.search("ours")


async def test_nothing_is_added_while_an_agent_runs_a_turn(sessions: Sessions, owner: Owner) -> None:
    chat = sessions["s"]
    await chat.add(user="one")
    await sessions.store.open_turn(Turn("t", chat.key), owner)
    with pytest.raises(SessionBusy):
        await chat.add(user="two")


async def test_the_store_is_closed_at_the_end() -> None:
    async with Sessions.open("memory:") as sessions:
        await sessions["s"].add(user="one")
    with pytest.raises(StoreError):
        await sessions.list()
    await sessions.aclose()


@pytest.mark.parametrize("url", ["sqlite:{}/chats.db", "files:{}/chats"])
def test_the_same_works_without_an_event_loop(tmp_path: Path, url: str) -> None:
    url = url.format(tmp_path)
    with Sessions.open(url) as sessions:
        chat = sessions["s"]
        chat.add(user="one", assistant="two")
        copy = chat.fork("copy")
        copy.add(user="three")
        copy.undo()
        copy.clear()
        assert [message.text for message in chat] == ["one", "two"]
    with Sessions.open(url) as sessions:
        assert [message.text for message in sessions["s"].last(5)] == ["one", "two"]
        assert {session.key.id for session in sessions.list()} == {"s", "copy"}
        assert [hit.session.key.id for hit in sessions.search("two")] == ["s"]
        assert sessions.delete("copy")


async def test_without_await_it_also_works_where_a_loop_is_running(tmp_path: Path) -> None:
    with Sessions.open(f"sqlite:{tmp_path}/chats.db") as sessions:
        sessions["s"].add(user="one")
        assert [message.text for message in sessions["s"]] == ["one"]


@pytest.mark.parametrize("number", range(2))
def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"(?s)```python\n(.*?)```\n+```text\n(.*?)```", DOCS.read_text(encoding="utf-8"))
    assert len(examples) == 2
    code, output = examples[number]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, DOCS.name, "exec"), {"__name__": "__main__", "asyncio": asyncio})
    assert printed.getvalue() == output
