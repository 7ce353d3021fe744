from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.auth.identity import User

from agent_kernel.core.api_tokens import ApiToken
from jupyter_ext.api.http import request_log
from jupyter_ext.auth.callers import Caller
from jupyter_ext.notebooks.kernels import Kernel

PROGRAM = Caller("local", token=ApiToken("0123456789ab", "app", frozenset({"turns"}), "", 0.0, 1.0))
NOTEBOOK = Caller("local", kernel=Kernel("k1", "local"))
PERSON = Caller("ada", user=User("ada", "Ada"))


@pytest.mark.parametrize(
    ("verb", "status", "caller", "level"),
    [
        ("POST", 200, PROGRAM, logging.INFO),
        ("GET", 200, PROGRAM, logging.DEBUG),
        ("POST", 202, PERSON, logging.DEBUG),
        ("POST", 202, NOTEBOOK, logging.DEBUG),
        ("GET", 403, None, logging.INFO),
        ("GET", 404, PERSON, logging.INFO),
        ("POST", 503, PERSON, logging.WARNING),
        ("GET", request_log.LEFT, PERSON, logging.DEBUG),
    ],
)
def test_what_a_page_asks_all_the_time_is_told_to_nobody_who_does_not_ask(
    verb: str, status: int, caller: Caller | None, level: int
) -> None:
    assert request_log.level(verb, status, caller) == level


@pytest.mark.parametrize(
    ("caller", "who"),
    [(None, "nobody"), (PERSON, "a user"), (NOTEBOOK, "kernel k1"), (PROGRAM, "token 0123456789ab (app)")],
)
def test_a_line_says_who_asked_what_and_how_it_went(
    caller: Caller | None, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    request: Any = SimpleNamespace(method="POST", request_time=lambda: 0.0123)
    log = logging.getLogger(__name__)
    with caplog.at_level(logging.DEBUG):
        for status in (200, request_log.LEFT):
            request_log.write(log, request, status, route="turns/{id}", request_id="req_1", caller=caller)
    first, second = caplog.messages
    assert first == f"agent-kernel POST turns/{{id}}: 200 in 12 ms for {who}, request req_1"
    assert "499 (the client left)" in second
