"""Tests how the kernel keeps a claim while the server is unreachable at times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent_kernel.core.errors import AgentKernelError, InvalidRequest, NotFound, ServerUnreachable
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn import client_calls
from agent_kernel.notebook.turn.client_calls import Claim
from tests.waiting import block_until


class Posts(ServerClient):
    """A client that records its posts; ``trouble`` returns the error that a post meets."""

    def __new__(cls, *_: object) -> Posts:
        return object.__new__(cls)

    def __init__(self, trouble: Callable[[int], AgentKernelError | None] = lambda number: None) -> None:
        object.__setattr__(self, "posted", [])
        object.__setattr__(self, "trouble", trouble)

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        self.posted.append(body)  # type: ignore[attr-defined]
        if error := self.trouble(len(self.posted)):  # type: ignore[attr-defined]
            raise error
        return {}

    def actions(self) -> list[str]:
        return [body["action"] for body in self.posted]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "COALESCE_S", 0.01)


def make_claim(server: ServerClient) -> Claim:
    return Claim(server, "turn", "call", {"token": "t", "renew_s": 0.02})


def test_a_claim_is_renewed_again_after_the_server_was_away_for_a_while() -> None:
    server = Posts(lambda number: ServerUnreachable("away") if number <= 3 else None)
    with make_claim(server) as claim:
        block_until(lambda: server.actions().count("renew") >= 6)
        claim.finish("success", "done", [])
    assert server.actions()[-1] == "finish"


def test_a_turn_that_no_longer_waits_is_left_alone() -> None:
    server = Posts(lambda number: NotFound("the turn was stopped"))
    with make_claim(server) as claim:
        block_until(lambda: bool(server.actions()))
        claim.output("stdout", "more")
        time.sleep(0.1)
        assert server.actions() == ["renew"]
        claim.finish("success", "done", [])


def test_the_answer_is_sent_again_when_the_server_did_not_answer() -> None:
    server = Posts(lambda number: ServerUnreachable("away") if number == 1 else None)
    claim = make_claim(server)
    with claim:
        claim.finish("success", "done", [])
    assert server.actions() == ["finish", "finish"]


def test_pictures_beyond_what_a_request_holds_are_left_out_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "MAX_MEDIA_CHARS", 10)
    server = Posts()
    media: list[Mapping[str, str]] = [{"mime": "image/png", "data": "x" * 6}, {"mime": "image/png", "data": "y" * 6}]
    with make_claim(server) as claim:
        claim.finish("success", "drawn", media)
    [sent] = [body for body in server.posted if body["action"] == "finish"]  # type: ignore[attr-defined]
    assert sent["media"] == media[:1]
    assert sent["text"] == "drawn\n[1 of them are too large to be sent to you]"


def test_a_refused_result_becomes_an_error_that_says_why_and_the_turn_goes_on() -> None:
    server = Posts(lambda number: InvalidRequest("media.0.mime: unknown type") if number == 1 else None)
    with make_claim(server) as claim:
        claim.finish("success", "drawn", [{"mime": "image/odd", "data": "eA=="}], details={"variables": ["x"]})
    _, sent = server.posted  # type: ignore[attr-defined]
    assert (sent["status"], "media" in sent, "details" in sent) == ("error", False, False)
    assert sent["text"].startswith("drawn\n")
    assert "media.0.mime: unknown type" in sent["text"]


def test_a_server_that_refuses_every_result_is_an_error_of_the_cell() -> None:
    server = Posts(lambda number: InvalidRequest("no results any more"))
    with make_claim(server) as claim, pytest.raises(InvalidRequest, match="no results any more"):
        claim.finish("success", "done", [])
    assert server.actions() == ["finish", "finish"]
