"""Who hears what of turns and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, TextDelta
from agent_kernel.core.session import SessionKey
from agent_kernel.turn.agent import TurnRequest
from jupyter_ext.push.notifications import News, Target
from jupyter_ext.push.watch_snapshot import Standing
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.turns import LiveTurn, Order

SESSION = Target("ns", "session", "s")
KERNEL = Target("ns", "kernel", "k")
ASKED = ApprovalRequired("a1", "c1", "python", "python.live", "k", "secret()", {"code": "secret()"})


def turn(namespace: str = "ns") -> LiveTurn:
    order = Order(SessionKey(namespace, "s"), TurnRequest("x"), kernel="k")
    return LiveTurn("t1", order, EventLog("t1", "s"))


def test_a_page_that_watches_a_session_and_its_kernel_hears_of_a_turn_once() -> None:
    news, heard = News(), list[Mapping[str, Any]]()
    ends = [news.watch(target, "page", heard.append) for target in (SESSION, KERNEL)]
    news.began(turn())
    assert [said["type"] for said in heard] == ["turn.opened"]
    ends[0]()
    news.ended(turn())
    ends[1]()
    news.ended(turn())
    assert [said["type"] for said in heard] == ["turn.opened", "turn.closed"]
    assert news.kernels("ns") == []


def test_another_namespace_hears_nothing() -> None:
    news, heard = News(), list[Mapping[str, Any]]()
    news.watch(SESSION, "page", heard.append)
    news.watch(KERNEL, "other", heard.append)
    news.began(turn("another"))
    news.changed(SessionKey("another", "s"), "title")
    news.bound("another", "k", "s")
    assert heard == []


def test_a_question_is_told_without_its_code_and_text_not_at_all() -> None:
    news, heard = News(), list[Mapping[str, Any]]()
    news.watch(SESSION, "page", heard.append)
    for body in (TextDelta("words"), ASKED, ApprovalResolved("a1", "c1", "deny", "no")):
        news.said(turn(), body)
    assert [said["type"] for said in heard] == ["approval.waiting", "approval.resolved"]
    assert "secret" not in str(heard)


def test_news_that_come_before_a_page_knows_how_it_stands_follow_what_it_is_told() -> None:
    heard: list[Mapping[str, Any]] = []
    standing = Standing(heard.append)
    standing.hear({"n": 1})
    standing.hear({"n": 2})
    assert heard == []
    standing.known([{"n": 0}, {"n": 1}])
    standing.hear({"n": 3})
    assert heard == [{"n": 2}, {"n": 3}]


def test_a_listener_that_ends_while_it_is_told_hinders_no_other() -> None:
    news, heard = News(), list[str]()

    def leaves(said: Mapping[str, Any]) -> None:
        heard.append("first")
        first()

    first = news.watch(SESSION, "first", leaves)
    news.watch(SESSION, "second", lambda said: heard.append("second"))
    news.changed(SessionKey("ns", "s"), "title")
    news.changed(SessionKey("ns", "s"), "title")
    assert heard == ["first", "second", "second"]
