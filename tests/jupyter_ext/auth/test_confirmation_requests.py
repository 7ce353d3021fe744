from __future__ import annotations

import pytest

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.core.session import SessionKey
from jupyter_ext.auth.confirmation_requests import MAX_WAITING, BindRequests

KEY = SessionKey("ns", "s")
URL = "http://127.0.0.1:8888/"


def test_a_request_is_decided_once() -> None:
    binds = BindRequests(lambda: URL)
    bind = binds.add("k", KEY, "a.ipynb")
    assert binds.state(bind) == "waiting"
    binds.decide(bind, "confirmed")
    assert binds.state(binds.get(bind.id)) == "confirmed"
    with pytest.raises(Conflict, match="confirmed"):
        binds.decide(bind, "denied")


def test_a_request_expires() -> None:
    now = 0.0
    binds = BindRequests(lambda: URL, expires_s=300, clock=lambda: now)
    bind = binds.add("k", KEY, "a.ipynb")
    now = 301.0
    assert binds.state(bind) == "expired"
    with pytest.raises(Conflict, match="expired"):
        binds.decide(bind, "confirmed")


def test_a_kernel_that_asks_without_end_pushes_out_its_old_requests_only() -> None:
    binds = BindRequests(lambda: URL)
    first = binds.add("k", KEY, "a.ipynb")
    last = [binds.add("k", KEY, "a.ipynb") for _ in range(MAX_WAITING)][-1]
    with pytest.raises(NotFound):
        binds.get(first.id)
    assert binds.get(last.id) is last


def test_a_kernel_learns_where_a_person_confirms_its_request() -> None:
    binds = BindRequests(lambda: URL, expires_s=60)
    bind = binds.add("k", KEY, "a.ipynb")
    assert binds.pending(bind) == {"pending": bind.id, "url": f"{URL}agent/v1/binds/{bind.id}/confirm", "expires_s": 60}
