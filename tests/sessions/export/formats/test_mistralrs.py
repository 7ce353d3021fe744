"""Tests the format of mistral.rs: we read what it writes, and write only what it could have written."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agent_kernel.core.messages import Media, Message, Text, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Item, Turn
from agent_kernel.sessions.export.import_export import export_session, import_session
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.talk import KEY

PNG = Media.of("image/png", b"\x89PNG small")
CSV = Media.of("text/csv", b"a,b\n")
ZIP = Media.of("application/zip", b"PK\xff")
CALL = ToolCall("call-1", "python", {"code": "1"})


async def import_messages(document: bytes) -> list[Message]:
    store = MemoryStore()
    come = await import_session(store, "local", document)
    items: list[Item] = await store.latest(come.session.key)
    await store.aclose()
    return [item.message for item in items]


async def export_document() -> dict[str, Any]:
    store = MemoryStore()
    result = tool_result(CALL, "done", "success", [PNG, CSV, ZIP])
    said = [user("look", [PNG]), assistant("", [CALL], "hm"), result, assistant("see")]
    await store.add_turn(Turn("t1", KEY), [Message("user", (Text("secret time"),), hidden=True), *said])
    written = await export_session(store, KEY, "mistralrs")
    await store.aclose()
    assert written.left_out == {"hidden": 1}
    document: dict[str, Any] = json.loads(written.document)
    return document


async def test_every_value_is_tagged_and_the_nth_image_is_that_of_the_nth_part() -> None:
    document = await export_document()
    assert list(document) == ["messages", "images", "videos", "files"]
    for message in document["messages"]:
        for value in message.values():
            ((side, inner),) = value.items()
            assert isinstance(inner, str if side == "Left" else list)
    parts = [part for body in document["messages"] for part in body["content"].get("Right", [])]
    assert [part["type"] for part in parts] == ["image", "text", "image", "text"]
    assert document["images"] == [base64.b64encode(PNG.data or b"").decode()] * 2
    assert document["messages"][2] == {
        "role": {"Left": "tool"},
        "content": {"Right": [{"type": "image"}, parts[3]]},
        "name": {"Left": "python"},
    }
    call = document["messages"][1]["tool_calls"]["Right"][0]
    assert call == {"id": "call-1", "type": "function", "function": {"name": "python", "arguments": {"code": "1"}}}


async def test_files_are_whole_objects_with_text_or_bytes() -> None:
    text, binary = (await export_document())["files"]
    assert (text["mime_type"], text["text"], text["bytes"], text["purpose"]) == ("text/csv", "a,b\n", 4, "agent_output")
    assert base64.b64decode(binary["data_base64"]) == ZIP.data
    assert set(text["source"]) == {"tool", "round", "turn"}


async def test_what_was_written_comes_in_with_its_pictures() -> None:
    messages = await import_messages(json.dumps(await export_document()).encode())
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[0].media == (PNG,)
    assert (messages[2].text, messages[2].media) == ("done", (PNG, CSV, ZIP))
    assert (messages[1].reasoning, messages[2].call_id) == ("hm", "call-1")


async def test_files_come_in_as_files_of_the_session_and_go_out_again() -> None:
    files = [
        *(await export_document())["files"],
        {"id": "file_ab12_r0_1", "name": "big.bin", "bytes": 9 << 20, "created_at": 5, "source": {}, "preview": "be"},
        {"id": "no id of a file", "name": "gone\n.txt", "code": "not_produced", "message": "not produced"},
    ]
    store = MemoryStore()
    come = await import_session(store, "local", json.dumps({"messages": [], "files": files}).encode())
    kept = {file.name: file for file in await store.files(come.session.key)}
    assert [await store.file_body(come.session.key, file.id) for file in kept.values() if not file.error] == [
        CSV.data,
        ZIP.data,
    ]
    big, gone = kept["big.bin"], kept["gone_.txt"]
    assert (big.id, big.error, big.size, big.preview) == ("file_ab12_r0_1", "elided", 0, "be")
    assert (gone.error, gone.message, gone.id[:5]) == ("not_produced", "not produced", "file-")
    again = json.loads((await export_session(store, come.session.key, "mistralrs")).document)["files"]
    bodies = [file.get("text", file.get("data_base64")) for file in again]
    assert {"a,b\n", base64.b64encode(ZIP.data or b"").decode()} <= set(bodies)
    await store.aclose()


FRAME = base64.b64encode(PNG.data or b"").decode()
VIDEO = {"fps": 1.5, "frames": [FRAME, FRAME], "total_num_frames": 60, "sampled_indices": [0, 30]}


async def test_the_frames_of_a_video_come_in_as_pictures_and_go_out_as_a_video() -> None:
    parts = [{"type": "image"}, {"type": "video"}, {"type": "video"}, {"type": "text", "text": "what?"}]
    said = {"role": {"Left": "user"}, "content": {"Right": parts}}
    other = VIDEO | {"fps": 24.0, "frames": [FRAME], "sampled_indices": [7]}
    document = {"messages": [said], "images": [FRAME], "videos": [VIDEO, other], "files": []}
    (message,) = await import_messages(json.dumps(document).encode())
    notes = "[video, 2 frames, 1.5 fps, frames 0 30 of 60][video, 1 frames, 24.0 fps, frames 7 of 60]"
    assert message.text == f"{notes}what?"
    assert message.media == (PNG,) * 4
    store = MemoryStore()
    come = await import_session(store, "local", json.dumps(document).encode())
    assert json.loads((await export_session(store, come.session.key, "mistralrs")).document) == document
    await store.aclose()


@pytest.mark.parametrize(
    "facts", [{}, {"fps": "fast"}, {"fps": -1.0}, {"sampled_indices": [0]}, {"total_num_frames": None}]
)
async def test_a_video_without_sound_facts_keeps_its_frames(facts: dict[str, Any]) -> None:
    video = {**(VIDEO if facts else {"frames": VIDEO["frames"]}), **facts}
    said = {"role": "user", "content": [{"type": "video"}]}
    store = MemoryStore()
    come = await import_session(store, "local", json.dumps({"messages": [said], "videos": [video]}).encode())
    [item] = await store.latest(come.session.key)
    assert item.message.text == "[video, 2 frames]"
    [again] = json.loads((await export_session(store, come.session.key, "mistralrs")).document)["videos"]
    assert again == {"fps": 1.0, "frames": [FRAME] * 2, "total_num_frames": 2, "sampled_indices": [0, 1]}
    await store.aclose()


async def test_results_stand_in_the_order_of_their_calls() -> None:
    calls = [ToolCall("c1", "weather", {"city": "Rome"}), ToolCall("c2", "weather", {"city": "Oslo"})]
    results = [tool_result(calls[1], "Oslo: 5", "error", [PNG]), tool_result(calls[0], "Rome: 30", "success", [CSV])]
    store = MemoryStore()
    await store.add_turn(Turn("t1", KEY), [user("both"), assistant("", calls), *results, assistant("done")])
    document = (await export_session(store, KEY, "mistralrs")).document
    come = {message.call_id: message for message in await import_messages(document) if message.role == "tool"}
    assert {id: (one.text, one.media, one.status) for id, one in come.items()} == {
        "c1": ("Rome: 30", (CSV,), "success"),
        "c2": ("Oslo: 5", (PNG,), "error"),
    }
    await store.aclose()
