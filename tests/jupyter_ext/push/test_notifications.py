"""Tests which users are notified of turns and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, TextDelta
from agent_kernel.core.session import SessionKey
from agent_kernel.turn.agent import TurnRequest
from jupyter_ext.push.notifications import Notifications, WatchTarget
from jupyter_ext.push.watch_snapshot import WatchSnapshot
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.turns import LiveTurn, TurnSpec

SESSION = WatchTarget("ns", "session", "s")
KERNEL = WatchTarget("ns", "kernel", "k")
ASKED = ApprovalRequired("a1", "c1", "python", "python.live", "k", "secret()", {"code": "secret()"})


def turn(namespace: str = "ns") -> LiveTurn:
    order = TurnSpec(SessionKey(namespace, "s"), TurnRequest("x"), kernel="k")
    return LiveTurn("t1", order, EventLog("t1", "s"))


def test_a_page_that_watches_a_session_and_its_kernel_hears_of_a_turn_once() -> None:
    news, heard = Notifications(), list[Mapping[str, Any]]()
    ends = [news.watch(target, "page", heard.append) for target in (SESSION, KERNEL)]
    news.on_turn_begin(turn())
    assert [said["type"] for said in heard] == ["turn.opened"]
    ends[0]()
    news.on_turn_end(turn())
    ends[1]()
    news.on_turn_end(turn())
    assert [said["type"] for said in heard] == ["turn.opened", "turn.closed"]
    assert news.watched_kernels("ns") == []


def test_another_namespace_hears_nothing() -> None:
    news, heard = Notifications(), list[Mapping[str, Any]]()
    news.watch(SESSION, "page", heard.append)
    news.watch(KERNEL, "other", heard.append)
    news.on_turn_begin(turn("another"))
    news.on_session_changed(SessionKey("another", "s"), "title")
    news.on_bound("another", "k", "s")
    assert heard == []


def test_a_question_is_told_without_its_code_and_text_not_at_all() -> None:
    news, heard = Notifications(), list[Mapping[str, Any]]()
    news.watch(SESSION, "page", heard.append)
    for body in (TextDelta("words"), ASKED, ApprovalResolved("a1", "c1", "deny", "no")):
        news.on_turn_body(turn(), body)
    assert [said["type"] for said in heard] == ["approval.waiting", "approval.resolved"]
    assert "secret" not in str(heard)


def test_news_that_come_before_a_page_knows_how_it_stands_follow_what_it_is_told() -> None:
    heard: list[Mapping[str, Any]] = []
    standing = WatchSnapshot(heard.append)
    standing.notify({"n": 1})
    standing.notify({"n": 2})
    assert heard == []
    standing.release([{"n": 0}, {"n": 1}])
    standing.notify({"n": 3})
    assert heard == [{"n": 2}, {"n": 3}]


def test_a_listener_that_ends_while_it_is_told_hinders_no_other() -> None:
    news, heard = Notifications(), list[str]()

    def leaves(said: Mapping[str, Any]) -> None:
        heard.append("first")
        first()

    first = news.watch(SESSION, "first", leaves)
    news.watch(SESSION, "second", lambda said: heard.append("second"))
    news.on_session_changed(SessionKey("ns", "s"), "title")
    news.on_session_changed(SessionKey("ns", "s"), "title")
    assert heard == ["first", "second", "second"]
