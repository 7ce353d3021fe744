"""Tests the encoding of requests to the model worker, including their pictures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, Message, Text, Usage, user
from agent_kernel.core.protocols import EndChunk, EngineRequest
from agent_kernel.engines.local.worker import messages as frames
from agent_kernel.engines.local.worker.messages import request_from_json, request_to_json

PARTS = st.one_of(
    st.builds(Text, st.text(min_size=1)), st.builds(Media.of, st.just("image/png"), st.binary(min_size=1))
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "tool", "assistant"]),
    st.lists(PARTS, max_size=4).map(tuple),
    hidden=st.booleans(),
)


def send_and_receive(request: EngineRequest, *, sees: bool) -> EngineRequest:
    return request_from_json(json.loads(json.dumps(request_to_json(request, sees=sees))))


def data_of(request: EngineRequest) -> list[bytes | None]:
    return [medium.data for message in request.messages for medium in message.media]


def canonical(message: Message) -> Message:
    """Return the message as the wire format carries it: the text of a message without media is one part."""
    return message if message.media else replace(message, parts=(Text(message.text),) if message.text else ())


@given(st.lists(MESSAGES, max_size=4), st.booleans())
def test_pictures_travel_to_models_that_see_and_only_their_names_to_others(messages: list[Message], sees: bool) -> None:
    request = EngineRequest(tuple(map(canonical, messages)), continues=sees)
    arrived = send_and_receive(request, sees=sees)

    assert arrived == request
    assert data_of(arrived) == (data_of(request) if sees else [None] * len(data_of(request)))


@pytest.mark.parametrize("stopped", ["", "END"])
def test_the_end_of_an_answer_travels_with_the_stop_sequence_it_ended_before(stopped: str) -> None:
    end = EndChunk("stop", Usage(3, 2), stopped)
    assert frames.chunk_from_json(json.loads(json.dumps(frames.chunk_to_json(end)))) == end


def test_a_picture_that_is_shown_twice_travels_once() -> None:
    picture = Media.of("image/png", b"x" * 3000)
    body = request_to_json(EngineRequest((user("a", [picture]), user("b", [picture]))), sees=True)

    assert len(body["media"]) == 1
    assert len(json.dumps(body)) < 5000


def test_a_picture_whose_data_are_gone_arrives_without() -> None:
    gone = replace(Media.of("image/png", b"x"), data=None)

    assert data_of(send_and_receive(EngineRequest((user("a", [gone]),)), sees=True)) == [None]


def test_more_than_a_frame_holds_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_MEDIA", 1000)
    pictures = [Media.of("image/png", bytes([at]) * 600) for at in range(2)]

    with pytest.raises(InvalidRequest):
        request_to_json(EngineRequest((user("both", pictures),)), sees=True)
    assert request_to_json(EngineRequest((user("both", pictures),)), sees=False)["media"] == {}
