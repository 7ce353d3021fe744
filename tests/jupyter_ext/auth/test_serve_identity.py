"""Tests the login of ``agent-kernel serve``: the content of its cookie, the key that signs it, and the link."""

from __future__ import annotations

import json

from jupyter_server.auth.identity import User

from agent_kernel.core.api_tokens import ApiToken
from jupyter_ext.auth.callers import TokenUser
from jupyter_ext.auth.serve_identity import (
    LINK_S,
    LoginLink,
    ServeIdentityProvider,
    cookie_secret,
    may_converse,
    user_of_token,
)


def test_the_cookie_of_a_lasting_token_has_its_id_and_leads_back_to_it() -> None:
    provider = ServeIdentityProvider()
    cookie = provider.user_to_cookie(user_of_token("0123456789ab"))
    assert json.loads(cookie) == {"token": "0123456789ab"}
    assert provider.user_from_cookie(cookie) == user_of_token("0123456789ab")


def test_every_other_cookie_is_jupyters() -> None:
    provider = ServeIdentityProvider()
    user = User("ada", "Ada", "Ada", "A", None, None)
    read = provider.user_from_cookie(provider.user_to_cookie(user))
    assert read == user
    assert not isinstance(read, TokenUser)


def test_logins_outlive_a_restart_only_with_a_token_that_cannot_be_guessed() -> None:
    assert cookie_secret("t" * 32) == cookie_secret("t" * 32) != cookie_secret("u" * 32)
    assert cookie_secret("short") != cookie_secret("short")


def test_a_link_logs_in_once() -> None:
    link = LoginLink()
    assert not link.use("")
    assert not link.use("wrong")
    assert link.use(link.code)
    assert not link.use(link.code)


def test_a_link_expires() -> None:
    now = [0.0]
    link = LoginLink(lambda: now[0])
    now[0] = LINK_S
    assert not link.use(link.code)


def test_a_token_is_for_the_page_if_it_reads_conversations_and_sends_turns() -> None:
    def token(*scopes: str) -> ApiToken:
        return ApiToken("0" * 12, "x", frozenset(scopes), "", 0.0, 1e12)

    assert may_converse(token("all"))
    assert may_converse(token("turns", "sessions"))
    assert not may_converse(token("turns"))
    assert not may_converse(token("sessions", "files"))
