"""Tests pictures that come with a turn over HTTP: which are accepted and stored with the question, and which are
refused.
"""

from __future__ import annotations

import base64

import pytest

from jupyter_ext.api.http.json_body import MAX_BODY
from jupyter_ext.api.native.request_schemas import MAX_PICTURES_BYTES
from tests.server import AgentServer, Json, followed, start_turn

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
MIB = 2**20


def medium(data: bytes = PNG, mime: str = "image/png") -> Json:
    return {"mime": mime, "data": base64.b64encode(data).decode()}


async def test_a_picture_is_stored_with_the_question_and_a_text_model_s_blindness_is_said(server: AgentServer) -> None:
    async with server.client() as client:
        started = await start_turn(client, "hello", media=[medium(), medium(b"GIF89a", "image/gif")])
        events = await followed(client, started["turn"])
        items = (await client.get(f"agent/v1/sessions/{started['session']}/items")).json()["items"]

    notices = [event["data"]["text"] for event in events if event["type"] == "notice"]
    assert notices == ["scripted reads text only; the 2 image(s) were not sent to it."]
    text, first, second = items[0]["message"]["content"]
    assert text["text"] == "hello"
    assert (first["mime"], first["size"]) == ("image/png", len(PNG))
    assert (second["mime"], second["size"]) == ("image/gif", 6)


@pytest.mark.parametrize(
    "media",
    [
        [medium(b"%PDF", "application/pdf")],
        [medium(b"<svg/>", "image/svg+xml")],
        [{"mime": "image/png", "data": "no base64!"}],
        [{"mime": "image/png"}],
        [medium()] * 17,
        [medium(bytes(11 * MIB)), medium(bytes(10 * MIB))],
    ],
    ids=["a document", "a drawing that is a program", "no base64", "no data", "too many", "too much"],
)
async def test_what_no_model_is_shown_is_refused_before_anything_is_stored(
    server: AgentServer, media: list[Json]
) -> None:
    async with server.client() as client:
        before = (await client.get("agent/v1/sessions")).json()["sessions"]
        reply = await client.post("agent/v1/turns", json={"prompt": "hello", "media": media}, timeout=60)
        after = (await client.get("agent/v1/sessions")).json()["sessions"]

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert len(before) == len(after)


def test_all_that_a_turn_may_hold_fits_into_a_body() -> None:
    assert MAX_PICTURES_BYTES * 4 / 3 + MIB < MAX_BODY
