"""Tests that the kernel follows a turn through streams that end early, and reads the rest from the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from agent_kernel.core.errors import AgentKernelError, Conflict, NotFound, ServerUnreachable
from agent_kernel.core.events import Event, EventBody, TextDelta, TurnFinished, TurnStarted
from agent_kernel.core.wire.turn_follower import STORED_HEADER
from agent_kernel.notebook import turn_event_reader
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn_event_reader import TurnEvents
from jupyter_ext.api.http.sse import encode
from tests.http_server import Answer, http_server

START, END = TurnStarted("m", True, "sandbox"), TurnFinished("interrupted", "", 1, {})


def stream(*bodies: EventBody, first: int = 1) -> bytes:
    events = [Event(number, "t", "s", 1, 0.0, body) for number, body in enumerate(bodies, first)]
    return b"".join(encode(event.to_json(), event.body.type, event.seq) for event in events)


class Handler:
    """Sends the answers in turn and closes each connection: bytes are sent as a stream, an error as a refusal."""

    answers: ClassVar[list[tuple[dict[str, str], bytes | AgentKernelError]]] = []
    paths: ClassVar[list[str]] = []

    @classmethod
    def answer(cls, path: str, body: bytes) -> Answer:
        cls.paths.append(path)
        headers, answer = cls.answers.pop(0)
        if isinstance(answer, bytes):
            return 200, headers, answer
        return 404, headers, encode({"error": answer.to_json()})[6:]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerClient]:
    monkeypatch.setattr(turn_event_reader, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(Handler, "answers", [])
    monkeypatch.setattr(Handler, "paths", [])
    with http_server(Handler.answer) as url:
        yield ServerClient(f"{url}/", "k", "token")


def test_a_stream_that_ends_early_is_read_on_at_its_position(server: ServerClient) -> None:
    Handler.answers += [({}, stream(START, TextDelta("a"))), ({}, stream(TextDelta("b"), END, first=3))]
    events = list(TurnEvents("t").read(server))
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [path.partition("?")[2] for path in Handler.paths] == ["", "after=2"]


def test_a_turn_whose_live_log_is_gone_ends_with_its_stored_rest(server: ServerClient) -> None:
    stored = {STORED_HEADER: "1"}
    Handler.answers += [
        ({}, stream(START, TextDelta("Some "))),
        (stored, stream(END, first=3)),
        (stored, stream(START, TextDelta("Some text."), END)),
    ]
    events = list(TurnEvents("t").read(server))
    assert [(event.seq, event.body) for event in events[1:]] == [
        (2, TextDelta("Some ")),
        (3, TextDelta("text.")),
        (4, END),
    ]


def test_a_turn_that_is_not_known_is_not_found_and_one_that_was_is_interrupted(server: ServerClient) -> None:
    Handler.answers += [({}, NotFound("no"))]
    with pytest.raises(NotFound):
        list(TurnEvents("t").read(server))
    Handler.answers += [({}, stream(START)), ({}, NotFound("no"))]
    with pytest.raises(ServerUnreachable, match="was restarted"):
        list(TurnEvents("t").read(server))


def test_a_stream_that_always_ends_early_is_given_up(server: ServerClient) -> None:
    Handler.answers += [({}, b"")] * 3
    with pytest.raises(ServerUnreachable, match="the stream ended early"):
        list(TurnEvents("t").read(server))
    assert Handler.answers == []


def test_a_reader_that_has_left_opens_no_stream(server: ServerClient) -> None:
    events = TurnEvents("t")
    events.leave()
    with pytest.raises(Conflict):
        list(events.read(server))
    assert Handler.paths == []
