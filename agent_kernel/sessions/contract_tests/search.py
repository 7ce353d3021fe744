"""Tests of search: the results are the same before and after new items are added to an index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, Text, ToolCall, assistant, system, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import MAX_SNIPPETS, SNIPPET_CHARS, SearchHit, SessionKey, SessionQuery, Turn
from agent_kernel.sessions.contract_tests.fixtures import KEY, Clock, Talk, assert_raises, calls, result

Find: TypeAlias = Callable[..., Awaitable[list[SearchHit]]]
LONG = 1_000_000


@pytest.fixture(params=["at once", "folded"])
def find(request: pytest.FixtureRequest, store: SessionStore) -> Find:
    """Return a search function. Each test runs twice: in the first run the function searches without indexing, in the
    second it adds all new items to the index before it searches."""

    async def find_hits(text: str, namespace: str = "local", **where: Any) -> list[SearchHit]:
        if request.param == "folded":
            assert await store.fold(LONG) == 0
        return await store.search(namespace, replace(SessionQuery(text), **where))

    return find_hits


async def _store_texts(
    store: SessionStore, id: str, *texts: str | Message, namespace: str = "local", turn: str = "t"
) -> None:
    """Store one turn in a session, which is created if necessary; the texts alternate between the user and the
    model."""
    messages = [
        text if isinstance(text, Message) else (assistant if at % 2 else user)(text) for at, text in enumerate(texts)
    ]
    await store.add_turn(Turn(turn, SessionKey(namespace, id), cell=f"cell of {turn}"), messages)


def _ids(hits: list[SearchHit]) -> list[str]:
    return [hit.session.key.id for hit in hits]


async def test_any_word_is_enough_and_more_of_them_are_better(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s1", "the weather is nice", "it is")
    await _store_texts(store, "s2", "a billing discrepancy", "let me see")
    await _store_texts(store, "s3", "billing", "yes")
    assert _ids(await find("billing discrepancy")) == ["s2", "s3"]
    assert await find("topaz") == []


async def test_a_hit_has_the_counts_of_its_session(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "the weather is nice", "it is")
    await _store_texts(store, "s", "and tomorrow", "rain", turn="t2")
    (hit,) = await find("weather")
    assert (hit.session.turn_count, hit.session.last_seq) == (2, 4)


async def test_a_word_is_found_inside_of_words(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "long", "crystallography of minerals", "これは石英の結晶です")
    for part in ("cryst", "graph", "minerals", "石英", "石英の結", "晶"):
        assert _ids(await find(part)) == ["long"], part


async def test_case_is_ignored_outside_of_ascii_too(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "Das Café in der Hauptstraße", "ÉTÉ, ВЕСНА und ÅNGSTRÖM")
    for word in ("cafÉ", "CAFÉ", "été", "весна", "HAUPTSTRASSE", "hauptstraße", "ångström", "das", "cafe\u0301"):
        assert _ids(await find(word)) == ["s"], word


async def test_nothing_in_a_query_means_anything_but_itself(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "plain", "alpha beta gamma", "NEAR the end OR not")
    await _store_texts(
        store, "signs", '100% of a_b "quoted" x* (y) col:z -w ^v back\\slash', "it's; DROP TABLE items; --"
    )
    for sign in ("%", "_", '"', '"quoted"', "x*", "(y)", "col:z", "-w", "^v", "back\\slash", "0%", "a_b", "'s;", "--"):
        assert _ids(await find(sign)) == ["signs"], sign
    for word in ("alph*", "al%a", "al_ha", '"alpha beta"', "alpha+beta", "NOT(beta)"):
        assert await find(word) == [], word
    assert _ids(await find("alpha AND")) == ["plain"]


async def test_only_what_people_and_models_said_is_searched(store: SessionStore, find: Find) -> None:
    call = ToolCall("c", "python", {"code": "garnet = 1"})
    await _store_texts(
        store,
        "s",
        system("garnet"),
        user("garnet", hidden=True),
        user("hello"),
        Message("assistant", (Text("thinking aloud"),), (call,), reasoning="garnet"),
        result("c", "garnet"),
        assistant("done"),
    )
    assert await find("garnet") == []
    assert _ids(await find("aloud")) == ["s"]
    for structure in ("content", "role", "tool_calls", "assistant", "python"):
        assert await find(structure) == [], structure


async def test_the_number_of_messages_decides_and_rarity_breaks_ties(store: SessionStore, find: Find) -> None:
    for filler in range(8):
        await _store_texts(store, f"filler{filler}", "common words", "nothing")
    await _store_texts(store, "thrice", "common", "common", "common")
    await _store_texts(store, "rare", "unobtainium", "nothing")
    best = await find("common unobtainium", limit=3)
    assert _ids(best)[:2] == ["thrice", "rare"]
    assert best[1].score > best[2].score
    assert all(3 < hit.score < 6 for hit in best[:1])


async def test_equal_sessions_come_newest_first(store: SessionStore, find: Find, clock: Clock) -> None:
    for id in ("b", "a", "c"):
        clock.now += 1
        await _store_texts(store, id, "quartz")
    assert _ids(await find("quartz")) == ["c", "a", "b"]


async def test_the_limit_is_of_sessions(store: SessionStore, find: Find) -> None:
    for number in range(6):
        await _store_texts(store, f"s{number}", "quartz", "quartz", "quartz")
    assert [len(await find("quartz", limit=limit)) for limit in (0, 3, 10)] == [0, 3, 6]
    assert len(await find("quartz")) == 5


async def test_an_empty_query_finds_nothing(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "quartz")
    assert await find("") == await find(" \n\t") == []


async def test_a_query_that_makes_no_sense_is_refused(store: SessionStore, find: Find) -> None:
    wrong: list[dict[str, Any]] = [
        {"limit": -1},
        {"role": "tool"},
        {"path": "n.ipynb"},
        {"root": "/r"},
        {"since": float("nan")},
    ]
    for where in wrong:
        await assert_raises(InvalidRequest, find("quartz", **where))
    await assert_raises(InvalidRequest, find("q" * 1001))
    await assert_raises(InvalidRequest, find("quartz", namespace=""))


async def test_a_namespace_is_never_a_prefix(store: SessionStore, find: Find) -> None:
    for namespace in ("a", "a:b", "ab", "A", "%"):
        await _store_texts(store, f"of {namespace}", "quartz", namespace=namespace)
    for namespace in ("a", "a:b", "ab", "A", "%"):
        assert _ids(await find("quartz", namespace)) == [f"of {namespace}"]
    assert await find("quartz", "other") == []


async def test_a_notebook_is_its_session(store: SessionStore, find: Find) -> None:
    for id in ("here", "there"):
        await _store_texts(store, id, "quartz")
    await store.bind("local", "/root", "n.ipynb", "here")
    assert _ids(await find("quartz", root="/root", path="n.ipynb")) == ["here"]
    assert await find("quartz", root="/other", path="n.ipynb") == []
    assert await find("quartz", root="/root", path="n.ipynb", sessions=frozenset({"there"})) == []


async def test_a_query_can_name_its_sessions(store: SessionStore, find: Find) -> None:
    for id in ("s1", "s2", "s3"):
        await _store_texts(store, id, "quartz")
    assert sorted(_ids(await find("quartz", sessions=frozenset({"s1", "s3", "none"})))) == ["s1", "s3"]
    assert await find("quartz", sessions=frozenset()) == []


async def test_a_query_can_name_who_said_it(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "asked", "quartz", "what?")
    await _store_texts(store, "answered", "what?", "quartz")
    assert _ids(await find("quartz", role="user")) == ["asked"]
    assert _ids(await find("quartz", role="assistant")) == ["answered"]


async def test_a_query_can_name_when_it_was_said(store: SessionStore, find: Find, clock: Clock) -> None:
    began = clock.now
    for number in range(3):
        await _store_texts(store, f"s{number}", "quartz")
        clock.now += 60
    assert _ids(await find("quartz", since=began + 60)) == ["s2", "s1"]
    assert _ids(await find("quartz", until=began + 60)) == ["s1", "s0"]
    assert _ids(await find("quartz", since=began + 1, until=began + 61)) == ["s1"]


async def test_sessions_that_are_not_used_any_more_can_be_left_out(
    store: SessionStore, find: Find, clock: Clock
) -> None:
    for id in ("old", "read", "new"):
        await _store_texts(store, id, "quartz")
        clock.now += 60
    await store.touch(SessionKey("local", "read"))
    assert _ids(await find("quartz", used=clock.now - 60, limit=1)) == ["new"]
    assert _ids(await find("quartz", used=clock.now - 60)) == ["new", "read"]


async def test_a_snippet_is_a_line_around_the_word(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "ß " * 300 + "before\n\nTOPAZ behind " + "x" * 600)
    ((hit,),) = [await find("topaz")]
    (snippet,) = hit.snippets
    assert "before TOPAZ behind x" in snippet.text
    assert 30 <= snippet.text.index("TOPAZ") <= 50
    assert len(snippet.text) <= SNIPPET_CHARS
    assert (snippet.turn, snippet.cell, snippet.role, snippet.seq) == ("t", "cell of t", "user", 1)
    assert hit.session == await store.info(SessionKey("local", "s"))


async def test_snippets_are_few_and_in_order(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", *[f"topaz {number}" for number in range(8)], "topaz and beryl", *["topaz"] * 3)
    (hit,) = await find("topaz beryl")
    seqs = [snippet.seq for snippet in hit.snippets]
    assert len(seqs) == MAX_SNIPPETS
    assert seqs == sorted(seqs)
    assert "topaz and beryl" in [snippet.text for snippet in hit.snippets]
    assert hit.score > 12


async def test_all_branches_are_searched(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "which stone?", "topaz", turn="t1")
    await store.branch(KEY, before="t1")
    await _store_texts(store, "s", "which stone?", "beryl", turn="t2")
    (hit,) = await find("topaz")
    assert [snippet.turn for snippet in hit.snippets] == ["t1"]
    assert len((await find("stone"))[0].snippets) == 2


async def test_what_is_taken_back_is_found_no_more(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "garnet", "topaz", "beryl")
    assert _ids(await find("beryl")) == ["s"]
    await store.pop(KEY)
    assert await find("beryl") == []
    assert await store.rewind(KEY, await store.latest(KEY, 1))
    assert await find("topaz") == []
    assert _ids(await find("garnet")) == ["s"]


async def test_what_is_cleared_or_deleted_is_found_no_more(store: SessionStore, find: Find) -> None:
    for id in ("cleared", "deleted", "kept"):
        await _store_texts(store, id, "garnet")
    assert len(await find("garnet")) == 3
    await store.clear(SessionKey("local", "cleared"))
    await store.delete(SessionKey("local", "deleted"))
    assert _ids(await find("garnet")) == ["kept"]
    await _store_texts(store, "cleared", "opal", turn="t2")
    await _store_texts(store, "deleted", "opal")
    assert _ids(await find("garnet")) == ["kept"]
    assert sorted(_ids(await find("opal"))) == ["cleared", "deleted"]


async def test_what_only_a_dropped_branch_said_is_found_no_more(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "garnet", turn="t1")
    await store.branch(KEY, name="side")
    await _store_texts(store, "s", "topaz", turn="t2")
    await store.switch(KEY, "main")
    assert _ids(await find("topaz")) == ["s"]
    await store.drop_branch(KEY, "side")
    assert await find("topaz") == []
    assert _ids(await find("garnet")) == ["s"]


async def test_a_fork_is_a_session_of_its_own(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "garnet", "yes")
    await find("garnet")
    await store.fork(KEY, SessionKey("local", "copy"))
    assert sorted(_ids(await find("garnet"))) == ["copy", "s"]
    await store.delete(KEY)
    assert _ids(await find("garnet")) == ["copy"]


async def test_what_an_open_turn_said_is_found_as_it_grows(talk: Talk, find: Find) -> None:
    for words in ([user("garnet")], [calls("c")], [result("c")], [assistant("topaz")], [assistant("beryl")]):
        await talk.say(*words)
        await find("opal")
    assert [len(await find(stone)) for stone in ("garnet", "topaz", "beryl")] == [1, 1, 1]
    (hit,) = await find("garnet topaz beryl")
    assert [snippet.seq for snippet in hit.snippets] == [1, 4, 5]


async def test_characters_that_few_texts_have_do_no_harm(store: SessionStore, find: Find) -> None:
    await _store_texts(store, "s", "nul\0inside topaz", "half \ud83d of a pair beryl", "\U0001f600 smile")
    for word in ("topaz", "beryl", "\U0001f600", "inside"):
        assert _ids(await find(word)) == ["s"], word
    assert await find("\0") == []


async def test_folding_goes_in_steps_and_tells_what_is_left(store: SessionStore) -> None:
    await _store_texts(store, "s", *["garnet"] * 30)
    left = await store.fold(0)
    assert await store.fold(10) <= left <= 30
    while await store.fold(10):
        pass
    assert await store.fold() == 0
    await assert_raises(InvalidRequest, store.fold(-1))
    (hit,) = await store.search("local", SessionQuery("garnet"))
    assert 30 <= hit.score < 60
