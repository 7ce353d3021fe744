"""Tests a page's connection when a part of the server behind it fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.auth.identity import User

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import SessionKey
from jupyter_ext.api.native import socket
from jupyter_ext.api.native.socket import TRY_AGAIN, SocketHandler, Watch
from jupyter_ext.auth.callers import Caller
from jupyter_ext.push.notifications import Notifications, WatchTarget
from jupyter_ext.push.page_connection import PageConnection
from jupyter_ext.push.page_outbox import Outbox
from jupyter_ext.services import SETTING


class Handler(SocketHandler):
    """A handler without a connection."""

    def __init__(self, news: Notifications) -> None:
        self.said: list[str] = []
        self.codes: list[int | None] = []
        services = SimpleNamespace(notifications=news, runtime=None, turns=None, notebooks=None)
        log = SimpleNamespace(error=lambda *told, **more: None)
        self.application: Any = SimpleNamespace(settings={SETTING: services, "log": log})
        self.page = PageConnection(Outbox(self._keep, lambda code, reason: None))
        self.caller = Caller("ns", user=User("me"))

    @property
    def log(self) -> Any:
        return self.settings["log"]

    async def _keep(self, text: str) -> None:
        self.said.append(text)

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        self.codes.append(code)


async def test_a_watch_that_can_not_begin_holds_nothing_and_hides_no_other_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(target: WatchTarget, *parts: Any) -> list[dict[str, Any]]:
        raise StoreError("The disk is full.")

    news = Notifications()
    handler = Handler(news)
    heard: list[Any] = []
    news.watch(WatchTarget("ns", "session", "other"), handler.page, heard.append)
    monkeypatch.setattr(socket, "read_watch_state", failing)
    with pytest.raises(StoreError):
        await handler._watch(Watch(do="watch", session="s"))
    assert handler.page.held_count == 0
    news.on_session_changed(SessionKey("ns", "other"), "title")
    assert [said["what"] for said in heard] == ["title"]
    handler.page.close()


async def test_who_can_not_be_looked_at_again_has_to_come_back() -> None:
    async def failing() -> None:
        raise OSError("the hub does not answer")

    handler = Handler(Notifications())
    looking = asyncio.create_task(failing())
    await asyncio.wait([looking])
    handler._on_check_done(looking)
    assert handler.codes == [TRY_AGAIN]
