"""Tests which threads of Anthropic's clients are remembered, and for how long."""

from __future__ import annotations

from agent_kernel.core.session import SessionKey
from jupyter_ext.api.anthropic.message_threads import IDLE_S, MOST, MessageThread, MessageThreads

KEY = SessionKey("a", "s")


def test_a_thread_is_found_by_the_id_of_its_answer_and_by_nobody_else() -> None:
    threads = MessageThreads()
    threads.keep("msg_1", thread := MessageThread(KEY, "turn_1", "Be brief."))
    assert threads.get("a", "msg_1") is thread
    assert threads.get("b", "msg_1") is None
    assert threads.get("a", "msg_2") is None


def test_a_thread_that_was_not_used_for_long_is_gone() -> None:
    now = 1_000.0
    threads = MessageThreads(clock=lambda: now)
    threads.keep("old", MessageThread(KEY, "t", used=now))
    now += IDLE_S + 1
    assert threads.get("a", "old") is None
    threads.keep("new", MessageThread(KEY, "t", used=now))
    now -= IDLE_S
    assert threads.get("a", "old") is None, "it takes no memory any more"


def test_of_too_many_the_oldest_go() -> None:
    threads = MessageThreads()
    for number in range(MOST + 5):
        threads.keep(str(number), MessageThread(KEY, "t"))
    assert [threads.get("a", str(number)) is None for number in (0, 4, 5, MOST + 4)] == [True, True, False, False]


def test_of_too_much_text_the_oldest_go_and_one_that_is_too_long_is_not_kept() -> None:
    threads = MessageThreads(most_chars=100)
    for name in ("a", "b", "c"):
        threads.keep(name, MessageThread(KEY, "t", chars=40))
    assert [threads.get("a", name) is not None for name in ("a", "b", "c")] == [False, True, True]
    threads.keep("long", MessageThread(KEY, "t", chars=101))
    assert threads.get("a", "long") is None
    threads.keep("d", MessageThread(KEY, "t", chars=100))
    assert threads.get("a", "d") is not None


def test_an_answer_that_is_kept_again_counts_once_and_is_the_newest() -> None:
    threads = MessageThreads(most_chars=100)
    threads.keep("a", MessageThread(KEY, "t", chars=40))
    threads.keep("b", MessageThread(KEY, "t", chars=40))
    for _ in range(10):
        threads.keep("a", MessageThread(KEY, "t", chars=40))
    assert all(threads.get("a", name) for name in "ab")
    threads.keep("c", MessageThread(KEY, "t", chars=20))
    assert threads.get("a", "b"), "all three have 100 together"
    threads.keep("d", MessageThread(KEY, "t", chars=40))
    assert [threads.get("a", name) is not None for name in "abcd"] == [True, False, True, True]
