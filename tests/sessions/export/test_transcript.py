"""Tests the document beside a notebook: lossless, the same bytes for the same session, and never trusted when read."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, assistant, tool_result, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, Owner, Session, SessionKey, Turn
from agent_kernel.sessions import call_pairs
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import INLINE_BYTES, Exported, Transcript, export, parse
from tests.narrowing import not_none
from tests.sessions.strategies import transcripts
from tests.sessions.talk import KEY, Talk, calls, result

PNG = Media.of("image/png", b"\x89PNG small")
BIG = Media.of("image/png", bytes(INLINE_BYTES + 1))
SVG = Media.of("image/svg+xml", b"<svg/>")


def export_transcript(transcript: Transcript) -> Exported:
    return export(transcript)


def example() -> Transcript:
    turn = Turn(
        "t1", KEY, 1, "committed", "stop", "cell", "epoch", "live", "model", 1.0, 2.0, {"seconds": 1.5}, {"a": 1}
    )
    call = calls("c1")
    said = [
        user("plot é", hidden=True),
        call,
        tool_result(call.calls[0], "done", "success", [PNG, BIG, SVG]),
        replace(assistant("here", reasoning="think"), status="interrupted"),
        user("again", [PNG]),
    ]
    items = tuple(Item(seq, "t1", message, seq / 2) for seq, message in enumerate(said, start=1))
    media = {medium.hash: medium.data or b"" for medium in (PNG, BIG, SVG)}
    return Transcript(Session(KEY, "title", 1.0, 3.0, 5, 7, 1), (turn,), items, blobs=media)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(transcripts())
def test_what_is_exported_is_what_is_read(transcript: Transcript) -> None:
    written = export_transcript(transcript)
    read = parse(written.document, transcript.session.key.namespace)
    assert set(read.absent) == set(written.files)
    assert read.with_files(written.files) == transcript
    assert export_transcript(read.with_files(written.files)) == written


def test_the_document_is_a_mistralrs_session_and_more() -> None:
    written = export_transcript(example())
    document = json.loads(written.document)
    assert list(document) == ["agent_kernel", "messages", "images", "videos", "files"]
    assert document["agent_kernel"]["format"] == 3
    assert document["messages"][2]["content"][1]["type"] == "image"
    assert document["images"] == [base64.b64encode(PNG.data or b"").decode(), {"hash": BIG.hash}, {"hash": PNG.hash}]
    for message in document["messages"]:
        for value in message.values():
            assert isinstance(value, str) or all(isinstance(item, dict) for item in value)
    assert document["agent_kernel"]["items"][:2] == [{"turn": "t1", "time": 0.5, "hidden": True}, {"time": 1.0}]
    assert "plot é" in written.document.decode()


def test_large_media_are_files_and_small_ones_are_inline() -> None:
    written = export_transcript(example())
    assert written.files == {BIG.hash: BIG.data}
    assert len(written.document) < INLINE_BYTES
    read = parse(written.document)
    assert read.absent == (BIG.hash,)
    assert read.blobs == {PNG.hash: PNG.data, SVG.hash: SVG.data}


def test_a_namespace_stays_at_home() -> None:
    transcript = example()
    key = SessionKey("ann@example.org", "s")
    turns = tuple(replace(turn, key=key) for turn in transcript.turns)
    document = export_transcript(
        replace(transcript, session=replace(transcript.session, key=key), turns=turns)
    ).document
    assert b"ann@" not in document
    assert parse(document, "bob").session.key == SessionKey("bob", "s")


def test_a_medium_that_is_lost_leaves_the_rest_readable() -> None:
    transcript = example()
    written = export_transcript(replace(transcript, blobs={}))
    assert written.files == {}
    assert parse(written.document) == replace(transcript, blobs={})


def test_a_file_that_is_not_the_medium_it_is_named_after_is_refused() -> None:
    read = parse(export_transcript(example()).document)
    with pytest.raises(InvalidRequest):
        read.with_files({BIG.hash: b"something else"})
    assert read.with_files({"0" * 64: b"a file nobody names"}) == read


async def test_a_snapshot_holds_the_whole_session_at_one_revision(store: SessionStore, owner: Owner) -> None:
    assert await read_snapshot(store, KEY) is None
    talk = await Talk.begin(store, owner)
    await talk.say(user("look", [PNG]), calls("c1"), result("c1"))
    found = not_none(await read_snapshot(store, KEY))
    assert (found.session.head, len(found.items), found.blobs) == (3, 3, {PNG.hash: PNG.data})
    assert parse(export_transcript(found).document) == found


async def test_a_session_that_loses_a_medium_while_it_is_read_is_read_again(
    store: SessionStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("first"), user("look", [PNG]))
    await talk.close()
    blob, taken = store.blob, [PNG]

    async def shrinks(key: SessionKey, digest: str) -> bytes | None:
        while taken:
            taken.pop()
            await store.pop(key)
        return await blob(key, digest)

    monkeypatch.setattr(store, "blob", shrinks)
    found = not_none(await read_snapshot(store, KEY))
    assert ([item.message.text for item in found.items], found.blobs) == (["first"], {})


# -------------------------------------------------------------------------------------------- from mistral.rs

WRAPPED: dict[str, Any] = {
    "messages": [
        {"role": {"Left": "user"}, "content": {"Left": "plot"}},
        {
            "role": {"Left": "assistant"},
            "content": {"Left": ""},
            "reasoning_content": {"Left": "hm"},
            "tool_calls": {
                "Right": [
                    {"id": "call-1", "type": "function", "function": {"name": "x", "arguments": {"code": "1"}}},
                    {"id": "call-2", "type": "function", "function": {"name": "y", "arguments": '{"code": "2"}'}},
                ]
            },
        },
        {
            "role": {"Left": "tool"},
            "name": {"Left": "x"},
            "content": {"Right": [{"type": "image"}, {"type": "text", "text": "ok"}]},
        },
        {"role": {"Left": "tool"}, "name": {"Left": "y"}, "content": {"Left": "fine"}},
        {"role": {"Left": "assistant"}, "content": {"Left": "done"}},
        {"role": {"Left": "user"}, "content": {"Left": "more"}},
    ],
    "images": [base64.b64encode(PNG.data or b"").decode()],
    "videos": [{"fps": 1.0, "frames": [], "total_num_frames": 0, "sampled_indices": []}],
    "files": [],
}  # fmt: skip


def unwrap_messages(session: dict[str, Any]) -> dict[str, Any]:
    messages = [{name: next(iter(value.values())) for name, value in body.items()} for body in session["messages"]]
    return session | {"messages": messages}


@pytest.mark.parametrize("session", [WRAPPED, unwrap_messages(WRAPPED)])
def test_a_mistralrs_session_is_read_with_its_pairs_and_turns(session: dict[str, Any]) -> None:
    read = parse(json.dumps(session).encode())
    messages = [item.message for item in read.items]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message.call_id for message in messages if message.role == "tool"] == ["call-1", "call-2"]
    assert [dict(call.arguments) for call in messages[1].calls] == [{"code": "1"}, {"code": "2"}]
    assert messages[1].reasoning == "hm"
    assert messages[2].media == (PNG,)
    assert read.blobs == {PNG.hash: PNG.data}
    assert [item.turn for item in read.items] == ["turn-1"] * 5 + ["turn-2"]
    assert read.left_out == {"videos": 1}
    assert parse(export_transcript(read).document) == replace(read, left_out={})


def test_calls_without_ids_or_results_are_made_whole() -> None:
    call = {"type": "function", "function": {"name": "x", "arguments": {}}}
    said = [
        {"role": "tool", "content": "nobody asked"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "one"},
        {"role": "user", "content": "next"},
    ]
    read = parse(json.dumps({"messages": said, "images": []}).encode())
    assert call_pairs.pending_calls({}, [item.message for item in read.items]) == {}
    assert [item.message.status for item in read.items if item.message.role == "tool"] == ["success", "interrupted"]
    assert read.left_out == {"results": 1}


# ------------------------------------------------------------------------------------------------- hostile


def spoil_document(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(export_transcript(example()).document)
    change(document)
    return json.dumps(document).encode()


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "newer format": lambda d: d["agent_kernel"].update(format=4),
    "format is true": lambda d: d["agent_kernel"].update(format=True),
    "no session": lambda d: d["agent_kernel"].pop("session"),
    "session is a list": lambda d: d["agent_kernel"].update(session=[]),
    "empty id": lambda d: d["agent_kernel"]["session"].update(id=""),
    "control id": lambda d: d["agent_kernel"]["session"].update(id="a\nb"),
    "head too high": lambda d: d["agent_kernel"]["session"].update(head=2**60),
    "head too low": lambda d: d["agent_kernel"]["session"].update(head=1),
    "huge time": lambda d: d["agent_kernel"]["session"].update(created=10**400),
    "title is a number": lambda d: d["agent_kernel"]["session"].update(title=3),
    "turn state": lambda d: d["agent_kernel"]["turns"][0].update(state="paused"),
    "turn twice": lambda d: d["agent_kernel"]["turns"].append(d["agent_kernel"]["turns"][0]),
    "turn id": lambda d: d["agent_kernel"]["turns"][0].update(id="../../x\0"),
    "usage is text": lambda d: d["agent_kernel"]["turns"][0].update(usage={"seconds": "1"}),
    "item of no turn": lambda d: d["agent_kernel"]["items"][0].update(turn="t9"),
    "item missing": lambda d: d["agent_kernel"]["items"].pop(),
    "seq gap": lambda d: d["agent_kernel"]["items"][4].update(seq=9),
    "hidden is a number": lambda d: d["agent_kernel"]["items"][0].update(hidden=1),
    "items is an object": lambda d: d["agent_kernel"].update(items={}),
    "dangling call": lambda d: d["messages"][2].update(tool_call_id="other"),
    "dangling result": lambda d: d["messages"][1].pop("tool_calls"),
    "messages is text": lambda d: d.update(messages="x"),
    "message is text": lambda d: d["messages"].__setitem__(0, "x"),
    "role": lambda d: d["messages"][0].update(role="root"),
    "role is a list": lambda d: d["messages"][0].update(role=["user"]),
    "status": lambda d: d["messages"][2].update(status="maybe"),
    "status is an object": lambda d: d["messages"][2].update(status={"a": 1}),
    "content is a number": lambda d: d["messages"][0].update(content=5),
    "part without type": lambda d: d["messages"][4].update(content=[{}]),
    "part is a path": lambda d: d["messages"][4].update(content=[{"type": "file", "path": "/etc/passwd"}]),
    "call without name": lambda d: d["messages"][1]["tool_calls"][0].update(function={}),
    "call is text": lambda d: d["messages"][1].update(tool_calls=["x"]),
    "arguments is a list": lambda d: d["messages"][1]["tool_calls"][0]["function"].update(arguments=[1]),
    "hash is a path": lambda d: d["messages"][2]["content"][3].update(hash="../" * 20 + "etc/passwd"),
    "hash is upper case": lambda d: d["messages"][2]["content"][3].update(hash="A" * 64),
    "hash with a newline": lambda d: d["messages"][2]["content"][3].update(hash="a" * 64 + "\n"),
    "size is negative": lambda d: d["messages"][2]["content"][3].update(size=-1),
    "wrong bytes": lambda d: d["agent_kernel"]["blobs"][SVG.hash].update(data="AAAA"),
    "no base64": lambda d: d["agent_kernel"]["blobs"][SVG.hash].update(data="*"),
    "blob is a path": lambda d: d["agent_kernel"]["blobs"].update({SVG.hash: "/etc/passwd"}),
    "image of another hash": lambda d: d["images"].__setitem__(0, "AAAA"),
    "image too many": lambda d: d["images"].append("AAAA"),
    "image too few": lambda d: d["images"].pop(),
    "image is a number": lambda d: d["images"].__setitem__(0, 7),
    "too deep": lambda d: d["agent_kernel"]["turns"][0].update(record={"x": deep(300)}),
    "far too deep": lambda d: d["agent_kernel"]["turns"][0].update(record={"x": deep(900)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(spoil_document(HOSTILE[name]))
    assert len(refused.value.message) > 10


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"messages": NaN}',
        b'{"messages": [1e999]}',
        b"1" * 5000,
    ],
)
def test_what_is_no_document_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse(document)


def test_a_document_over_the_limit_is_not_even_decoded() -> None:
    with pytest.raises(InvalidRequest, match="more than the limit of 100"):
        parse(b"\xff" * 101, max_bytes=100)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_a_document_changed_anywhere_is_read_or_refused_but_never_a_crash(data: st.DataObject) -> None:
    document = json.loads(export_transcript(example()).document)
    spot: Any = document
    while isinstance(spot, dict | list) and spot:
        keys: list[Any] = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(spot[key], dict | list) or not spot[key] or data.draw(st.booleans()):
            spot[key] = data.draw(
                st.sampled_from([None, True, -1, 2**80, 1.5, "x", "", [], {}, [1], {"Left": 1}, "\ud800"])
            )
            break
        spot = spot[key]
    before = copy.deepcopy(document)
    try:
        read = parse(json.dumps(document).encode())
    except InvalidRequest:
        return
    assert document == before
    parse(export_transcript(read).document)
