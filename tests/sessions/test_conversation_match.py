"""Tests that a request without a session continues the session that began like it."""

from __future__ import annotations

import pytest

from agent_kernel.core.messages import Media, Message, ToolCall, assistant, system, tool_result, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions import conversation_match
from agent_kernel.sessions.tables import conversation_openings
from tests.sessions.talk import Clock, calls, result

u1, a1, u2, a2, u3 = user("u1"), assistant("a1"), user("u2"), assistant("a2"), user("u3")
SCOPE = conversation_match.scope("alice", "tiny", [system("Be brief.")])


async def store_session(store: SessionStore, id: str, *turns: list[Message], scope: str = SCOPE) -> SessionKey:
    key = SessionKey("local", id)
    for number, said in enumerate(turns):
        await store.add_turn(Turn(f"{id}-{number}", key), said)
    await conversation_match.remember_openings(store, key, scope)
    return key


async def find_id(store: SessionStore, *said: Message, scope: str = SCOPE, namespace: str = "local") -> str | None:
    key = await conversation_match.find_session(store, namespace, scope, said)
    return key.id if key else None


async def test_the_next_request_of_a_client_finds_its_session(store: SessionStore) -> None:
    await store_session(store, "s", [u1, calls("c"), result("c"), a1])
    assert await find_id(store, u1, a1, u2) == "s"
    assert await find_id(store, system("Today is Monday."), u1, a1, u2) == "s"


async def test_case_f_a_beginning_without_an_answer_finds_nothing(store: SessionStore) -> None:
    """Stated difference: mistral.rs takes [system, user] for the beginning of any session that has it."""
    await store_session(store, "s", [u1, calls("c"), result("c"), a1])
    assert await find_id(store, u1) is None
    assert await find_id(store, system("s"), u1) is None
    assert await find_id(store, u1, u2) is None


async def test_case_g_a_conversation_that_adds_nothing_finds_nothing(store: SessionStore) -> None:
    await store_session(store, "s", [u1, a1], [u2, a2])
    assert await find_id(store, u1, a1) is None


async def test_a_request_asked_again_finds_the_session_it_leaves(store: SessionStore) -> None:
    await store_session(store, "s", [u1, a1], [u2, a2])
    assert await find_id(store, u1, a1, u2) == "s"
    assert await find_id(store, u1, a1, user("u2x")) == "s"


async def test_the_longest_beginning_wins(store: SessionStore) -> None:
    await store_session(store, "long", [u1, a1], [u2, a2])
    await store_session(store, "short", [u1, a1])
    assert await find_id(store, u1, a1, u2, a2, u3) == "long"
    assert await find_id(store, u1, a1, user("other")) == "short"


@pytest.mark.parametrize("alike", [3, 24])
async def test_of_sessions_that_began_alike_the_one_used_last_is_found(
    store: SessionStore, clock: Clock, alike: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_openings, "_NEWEST", 10)  # of the others each is looked up
    for number in range(alike):
        await store_session(store, f"s{number}", [u1, a1])
    clock.now += 1
    await store.rename(SessionKey("local", "s1"), "used last")
    assert await find_id(store, u1, a1, u2) == "s1"
    await store.delete(SessionKey("local", "s1"))
    assert await find_id(store, u1, a1, u2) == f"s{alike - 1}"
    clock.now += 1
    for number in range(20):
        await store_session(store, f"other{number}", [u2, a2])
    assert await find_id(store, u1, a1, u2) == f"s{alike - 1}"


async def test_results_of_tools_that_ran_at_the_client_go_on_with_a_session(store: SessionStore) -> None:
    await store_session(store, "s", [u1, a1])
    assert await find_id(store, u1, a1, u2, calls("c"), result("c")) == "s"
    assert await find_id(store, u1, a1, calls("c")) is None


async def test_an_answer_in_pieces_is_known_as_a_whole_and_by_its_end(store: SessionStore) -> None:
    said = assistant("Let me compute.\n", [ToolCall("c", "python", {})])
    await store_session(
        store, "s", [u1, said, tool_result(said.calls[0], "2", "success"), assistant("It is 2.")], [u2, a2]
    )
    for answer in ("Let me compute.\nIt is 2.", "Let me compute.\n\nIt is 2.", "It is 2."):
        assert await find_id(store, u1, assistant(answer), u2, a2, u3) == "s"
    assert await find_id(store, u1, assistant("Let me compute."), u2, a2, u3) is None


async def test_the_same_words_about_another_picture_are_another_conversation(store: SessionStore) -> None:
    one, other = (user("What is this?", [Media.of("image/png", data)]) for data in (b"1", b"2"))
    await store_session(store, "s", [one, a1])
    assert await find_id(store, other, a1, u2) is None
    assert await find_id(store, one, a1, u2) == "s"


async def test_sessions_are_found_by_those_who_began_them_with_the_same_model_and_instructions(
    store: SessionStore,
) -> None:
    await store_session(store, "s", [u1, a1])
    for subject, model, words in (("bob", "tiny", "Be brief."), ("alice", "big", "Be brief."), ("alice", "tiny", "")):
        other = conversation_match.scope(subject, model, [system(words)])
        assert await find_id(store, u1, a1, u2, scope=other) is None
    assert await find_id(store, u1, a1, u2, namespace="other") is None


def test_instructions_that_tell_the_time_are_the_same_tomorrow() -> None:
    told = [
        "You are Ada. Today is Monday, 30 March 2026, 09:15 AM.",
        "You are Ada. Today is Friday, 3 April 2026, 11:02 PM.",
    ]
    assert len({conversation_match.scope("a", "m", [system(words)]) for words in told}) == 1
    assert conversation_match.scope("a", "m", [system("You are Bob.")]) != conversation_match.scope(
        "a", "m", [system("You are Ada.")]
    )
    assert conversation_match.scope("a", "mb", []) != conversation_match.scope("am", "b", [])


async def test_a_session_that_is_used_by_its_id_is_not_found(store: SessionStore) -> None:
    await store.add_turn(Turn("t", SessionKey("local", "named")), [u1, a1])
    assert await find_id(store, u1, a1, u2) is None
    key = await store_session(store, "s", [u1, a1])
    await store.forget(key)
    assert await find_id(store, u1, a1, u2) is None


async def test_failed_turns_are_no_part_of_a_beginning(store: SessionStore, owner: Owner) -> None:
    key = await store_session(store, "s", [u1, a1])
    turn = await store.open_turn(Turn("failed", key), owner)
    await store.append(turn, owner, [user("lost")], 2)
    await store.close_turn(turn, owner, "failed", "out of memory")
    await store.add_turn(Turn("t3", key), [u2, a2])
    await conversation_match.remember_openings(store, key, SCOPE, after=2)
    assert await find_id(store, u1, a1, u2, a2, u3) == "s"


async def test_what_another_branch_says_is_found_too(store: SessionStore) -> None:
    key = await store_session(store, "s", [u1, a1], [u2, a2])
    await store.branch(key, before="s-1")
    await store.add_turn(Turn("other", key), [user("u2x"), assistant("a2x")])
    await conversation_match.remember_openings(store, key, SCOPE)
    for said in ((u2, a2), (user("u2x"), assistant("a2x"))):
        assert await find_id(store, u1, a1, *said, u3) == "s"


async def test_a_long_conversation_is_found_by_its_end(store: SessionStore) -> None:
    said = [message for n in range(700) for message in (user(f"u{n}"), assistant(f"a{n}"))]
    await store_session(store, "s", said)
    assert await find_id(store, *said, user("more")) == "s"
    assert await find_id(store, *said[:4], user("other")) == "s"
