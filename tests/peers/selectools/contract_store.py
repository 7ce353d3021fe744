"""Contract of selectools' own stores, with their defects, checked with our store and the real package."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from selectools.agent import Agent, AgentConfig
from selectools.memory import ConversationMemory
from selectools.observer import AgentObserver
from selectools.sessions import SessionMetadata, SessionSearchResult
from selectools.tools import Tool
from selectools.types import ContentPart, Message, Role, ToolCall
from selectools.usage import UsageStats

from agent_kernel.sessions.adapters.selectools import SelectoolsStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.narrowing import not_none


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SelectoolsStore]:
    made = SelectoolsStore(tmp_path / "s.db")
    yield made
    made.close()


def memory(*texts: str, limit: int = 50) -> ConversationMemory:
    made = ConversationMemory(max_messages=limit)
    made.add_many([Message(role=Role.USER, content=text) for text in texts])
    return made


def texts(memory: ConversationMemory | None) -> list[str]:
    return [message.content for message in not_none(memory).get_history()]


def session_texts(store: SelectoolsStore, id: str = "s", namespace: str = "local") -> list[str]:
    """Return the texts of all messages on the session's current branch."""
    key = store._key(id, namespace)
    said = store._bridge.run(store._sessions._store.latest(key, None))
    return [item.message.text for item in said]


# ------------------------------------------------------------------------------------------------ what they promise


def test_what_was_saved_is_loaded(store: SelectoolsStore) -> None:
    said = memory("Hello", "World", limit=7)
    said.summary = "a greeting"
    store.save("s", said)
    loaded = not_none(store.load("s"))
    assert loaded.to_dict() == said.to_dict()


def test_every_kind_of_message_comes_back(store: SelectoolsStore) -> None:
    said = ConversationMemory(max_messages=50)
    picture = ContentPart(type="image_base64", image_base64="aGVsbG8=", media_type="image/png")
    call = ToolCall(tool_name="calc", parameters={"x": [1, {"y": None}]}, id="c1", thought_signature="sig")
    said.add_many(
        [
            Message(role=Role.SYSTEM, content="Be brief"),
            Message(role=Role.USER, content="look", content_parts=[ContentPart(type="text", text="look"), picture]),
            Message(role=Role.ASSISTANT, content="", tool_calls=[call]),
            Message(role=Role.TOOL, content="42", tool_name="calc", tool_result="42", tool_call_id="c1"),
            Message(role=Role.ASSISTANT, content="again", tool_calls=[call]),
            Message(role=Role.TOOL, content="Error: no", tool_name="calc", tool_call_id="c1"),
            Message(role=Role.ASSISTANT, content="It is 42 · 石英 🎉 'quoted'"),
            Message(role=Role.ASSISTANT, content="", tool_calls=[ToolCall(tool_name="old", parameters={})]),
        ]
    )
    store.save("s", said)
    loaded = not_none(store.load("s"))
    assert loaded.to_dict() == said.to_dict()


def test_a_call_that_was_saved_before_its_result_meets_it_later(store: SelectoolsStore) -> None:
    said = memory("go")
    said.add(Message(role=Role.ASSISTANT, content="", tool_calls=[ToolCall(tool_name="f", parameters={}, id="c")]))
    store.save("s", said)
    said.add(Message(role=Role.TOOL, content="r", tool_name="f", tool_result="r", tool_call_id="c"))
    store.save("s", said)
    loaded = not_none(store.load("s"))
    assert loaded.to_dict() == said.to_dict()


def test_an_empty_memory_and_one_that_is_not_there(store: SelectoolsStore) -> None:
    store.save("empty", memory())
    assert texts(store.load("empty")) == []
    assert store.load("unknown") is None
    assert (store.exists("empty"), store.exists("unknown")) == (True, False)
    assert (store.delete("empty"), store.delete("empty")) == (True, False)


def test_the_second_save_wins(store: SelectoolsStore) -> None:
    store.save("s", memory("v1"))
    store.save("s", memory("v2"))
    assert texts(store.load("s")) == ["v2"]


def test_list_has_what_the_key_counts_and_when(store: SelectoolsStore) -> None:
    assert store.list() == []
    store.save("s1", memory("A"))
    store.save("s2", memory("B", "C"), namespace="team-a")
    found = {entry.session_id: entry for entry in store.list()}
    assert all(isinstance(entry, SessionMetadata) for entry in found.values())
    assert {id: entry.message_count for id, entry in found.items()} == {"s1": 1, "team-a:s2": 2}
    before = found["s1"]
    said = not_none(store.load("s1"))
    said.add(Message(role=Role.USER, content="more"))
    store.save("s1", said)
    after = next(entry for entry in store.list() if entry.session_id == "s1")
    assert (after.created_at, after.message_count) == (before.created_at, 2)
    assert after.updated_at > before.updated_at


def test_a_branch_lives_its_own_life(store: SelectoolsStore) -> None:
    said = memory("Hello", limit=9)
    said.summary = "short"
    store.save("s1", said, namespace="team")
    store.branch("s1", "s2", namespace="team")
    copy = not_none(store.load("s2", namespace="team"))
    assert copy.to_dict() == said.to_dict()
    copy.add(Message(role=Role.USER, content="only here"))
    store.save("s2", copy, namespace="team")
    assert texts(store.load("s1", namespace="team")) == ["Hello"]
    assert not store.exists("s2")
    with pytest.raises(ValueError, match="not found"):
        store.branch("nope", "s3")
    with pytest.raises(ValueError, match="exists"):
        store.branch("s1", "s2", namespace="team")


@pytest.mark.parametrize("id", ["", "a\x00b", "x" * 513])
def test_ids_that_no_store_takes_are_refused_by_every_method(store: SelectoolsStore, id: str) -> None:
    for call in (store.load, store.exists, store.delete, lambda id: store.save(id, memory("x"))):
        with pytest.raises(ValueError, match=r"empty|characters"):
            call(id)
    with pytest.raises(ValueError, match=r"empty|characters"):
        store.save("ok", memory("x"), namespace=id)
    store.save("x" * 512, memory("x"), namespace="user/1:..")
    assert store.exists("x" * 512, namespace="user/1:..")


def test_search_counts_messages_and_finds_parts_of_words(store: SelectoolsStore) -> None:
    store.save("common", memory("invoice one", "invoice two", "invoice three"))
    store.save("once", memory("a rare Invoice", *["filler"] * 25))
    store.save("cjk", memory("地球上に石英がある", "crystallography"))
    found = store.search("INVOICE")
    assert [hit.session_id for hit in found] == ["common", "once"]
    assert isinstance(found[0], SessionSearchResult)
    assert found[0].score > found[1].score > 0
    assert [hit.session_id for hit in store.search("cryst")] == ["cjk"]
    assert [hit.session_id for hit in store.search("石英")] == ["cjk"]
    assert store.search("石英")[0].matched_messages == ["地球上に石英がある"]
    assert store.search(" ") == store.search("x", limit=0) == []
    assert len(store.search("e", limit=1)) == 1


def test_search_does_not_look_at_tools_and_caps_what_it_shows(store: SelectoolsStore) -> None:
    said = memory("x" * 900 + " needle " + "y" * 900)
    said.add(Message(role=Role.ASSISTANT, content="", tool_calls=[ToolCall(tool_name="f", parameters={}, id="c")]))
    said.add(Message(role=Role.TOOL, content="secretword", tool_name="f", tool_call_id="c", tool_result="secretword"))
    store.save("s", said)
    assert store.search("secretword") == []
    (hit,) = store.search("needle")
    assert len(hit.matched_messages[0]) <= 200
    assert "needle" in hit.matched_messages[0]
    store.delete("s")
    assert store.search("needle") == []


# ---------------------------------------------------------------------------------------- what they get wrong, right


def test_what_a_memory_dropped_from_its_window_stays_stored(store: SelectoolsStore) -> None:
    said = memory(limit=20)
    for n in range(30):
        said.add(Message(role=Role.USER, content=f"m{n}"))
        store.save("s", said)
    assert session_texts(store) == [f"m{n}" for n in range(30)]
    assert texts(store.load("s")) == [f"m{n}" for n in range(10, 30)]


def test_two_that_loaded_the_same_and_both_save_lose_nothing(tmp_path: Path) -> None:
    one, two = SelectoolsStore(tmp_path / "s.db"), SelectoolsStore(tmp_path / "s.db")
    one.save("s", memory("base"))
    a, b = one.load("s"), two.load("s")
    assert a is not None
    assert b is not None
    a.add(Message(role=Role.USER, content="from A"))
    b.add(Message(role=Role.USER, content="from B"))
    one.save("s", a)
    two.save("s", b)
    assert texts(two.load("s")) == ["base", "from A", "from B"]
    b.add(Message(role=Role.USER, content="B again"))
    two.save("s", b)
    assert session_texts(one) == ["base", "from A", "from B", "B again"]
    one.close()
    two.close()


def test_an_edited_memory_goes_on_in_a_branch(store: SelectoolsStore) -> None:
    store.save("s", memory("a", "b", "c"))
    store.save("s", memory("a", "b", "d"))
    assert texts(store.load("s")) == ["a", "b", "d"] == session_texts(store)
    store.save("s", memory("a"))
    assert texts(store.load("s")) == ["a"] == session_texts(store)
    branches = store._bridge.run(store._sessions._store.branches(store._key("s", None)))
    assert [branch.turns for branch in branches] == [3, 3, 1]


def test_the_same_memory_saved_again_adds_nothing(store: SelectoolsStore) -> None:
    said = memory("a", "b")
    for _ in range(3):
        store.save("s", said)
    store.save("s", memory("a", "b"))
    assert session_texts(store) == ["a", "b"]


def test_namespaces_and_colons_in_ids_are_never_mixed_up(store: SelectoolsStore) -> None:
    store.save("b", memory("of a"), namespace="a")
    assert store.load("a:b") is None
    store.save("a:b", memory("bare"))
    store.save("b:c", memory("of a, with a colon"), namespace="a")
    store.save("c", memory("of a:b"), namespace="a:b")
    assert texts(store.load("b", namespace="a")) == ["of a"]
    assert texts(store.load("a:b")) == ["bare"]
    loaded = {tuple(texts(store.load(entry.session_id))) for entry in store.list()}
    assert loaded == {("of a",), ("bare",), ("of a, with a colon",), ("of a:b",)}
    assert [hit.session_id for hit in store.search("colon", namespace="a")] == ["b:c"]
    assert store.search("of", namespace="a:b")[0].session_id == "c"
    everywhere = store.search("of")
    assert {tuple(texts(store.load(hit.session_id))) for hit in everywhere} == loaded - {("bare",)}


def test_a_session_that_was_not_saved_for_too_long_is_gone_for_everybody(tmp_path: Path) -> None:
    clock = Clock()
    store = SelectoolsStore(SqliteStore(tmp_path / "s.db", clock=clock), 10, clock=clock)
    for call in ("load", "exists", "list", "search", "delete"):
        store.save("s", memory("Hello"))
        clock.now += 9
        assert store.exists("s")
        clock.now += 2
        result = getattr(store, call)(*{"list": (), "search": ("hello",)}.get(call, ("s",)))
        assert not result
        assert not store.exists("s")
        assert session_texts(store) == []
    store.save("s", memory("again"))
    assert texts(store.load("s")) == ["again"]
    store.close()


def test_many_threads_lose_nothing(store: SelectoolsStore) -> None:
    def write(n: int) -> None:
        for k in range(10):
            said = memory()
            for turn in range(3):
                said.add(Message(role=Role.USER, content=f"{n}.{k}.{turn}"))
                store.save(f"s{n}.{k}", said)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    counts = [entry.message_count for entry in store.list()]
    assert counts == [3] * 80


# --------------------------------------------------------------------------------------------------- with its Agent


class Provider:
    name = "scripted"
    supports_streaming = False
    supports_async = False

    def __init__(self, *replies: Message) -> None:
        self.replies = list(replies)
        self.seen: list[list[str]] = []

    def complete(self, *, model: str, system_prompt: str, messages: Any, tools: Any = None, **_: Any) -> Any:
        self.seen.append([message.content for message in messages])
        usage = UsageStats(
            prompt_tokens=1, completion_tokens=1, total_tokens=2, cost_usd=0.0, model="m", provider="scripted"
        )
        reply = self.replies.pop(0) if self.replies else Message(role=Role.ASSISTANT, content="ok")
        return reply, usage


def agent(store: SelectoolsStore, *replies: Message, **options: Any) -> Agent:
    echo = Tool(name="echo", description="says it", parameters=[], function=lambda: "said")
    config = AgentConfig(session_store=store, session_id="chat", **options.pop("config", {}))
    return Agent(tools=[echo], provider=Provider(*replies), config=config, **options)


class Watcher(AgentObserver):
    def __init__(self) -> None:
        self.events: list[tuple[str, str, int]] = []

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> None:
        self.events.append(("load", session_id, message_count))

    def on_session_save(self, run_id: str, session_id: str, message_count: int) -> None:
        self.events.append(("save", session_id, message_count))


def test_an_agent_saves_its_run_and_the_next_one_knows_it(store: SelectoolsStore) -> None:
    watcher = Watcher()
    calling = Message(role=Role.ASSISTANT, content="", tool_calls=[ToolCall(tool_name="echo", parameters={}, id="c1")])
    first = agent(store, calling, memory=ConversationMemory(), config={"observers": [watcher]})
    first.run([Message(role=Role.USER, content="I am Alice")])
    assert watcher.events[-1][:2] == ("save", "chat")
    second = agent(store)
    assert second.memory is not None
    assert texts(second.memory)[0] == "I am Alice"
    assert len(second.memory) == watcher.events[-1][2]
    second.run([Message(role=Role.USER, content="Who am I?")])
    assert second.provider.seen[0][0] == "I am Alice"
    assert session_texts(store, "chat")[0] == "I am Alice"
    assert [hit.session_id for hit in store.search("alice")] == ["chat"]


def test_a_run_with_a_new_memory_in_a_new_process_does_not_overwrite_what_is_stored(tmp_path: Path) -> None:
    """The quick start of selectools, run twice."""
    for text in ("I am Alice", "Who am I?"):
        store = SelectoolsStore(tmp_path / "s.db")
        agent(store, memory=ConversationMemory()).run([Message(role=Role.USER, content=text)])
        store.close()
    store = SelectoolsStore(tmp_path / "s.db")
    assert texts(store.load("chat")) == ["I am Alice", "ok", "Who am I?", "ok"]
    store.close()


async def test_an_agent_that_runs_in_a_loop_saves_too(store: SelectoolsStore) -> None:
    await agent(store, memory=ConversationMemory()).arun([Message(role=Role.USER, content="async")])
    assert texts(store.load("chat")) == ["async", "ok"]


def test_a_save_that_fails_is_said(store: SelectoolsStore, caplog: pytest.LogCaptureFixture) -> None:
    config = AgentConfig(session_store=store, session_id="a\x00b")
    tool = Tool(name="echo", description="says it", parameters=[], function=lambda: "said")
    bot = Agent(tools=[tool], provider=Provider(), config=AgentConfig(), memory=ConversationMemory())
    bot.config = config
    bot.run([Message(role=Role.USER, content="x")])
    assert "was not saved (ValueError)" in caplog.text


def test_a_closed_store_says_so(store: SelectoolsStore) -> None:
    store.save("s", memory("x"))
    store.close()
    store.close()
    with pytest.raises(RuntimeError, match="closed"):
        store.load("s")
