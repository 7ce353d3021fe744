"""Tests export from one store and import into another: nothing is lost, and nothing is added."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionNotFound, StoreError
from agent_kernel.core.messages import Media, Message, Text, ToolCall, assistant, tool_result, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey, SessionUpdate, Summary, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export import jsonl
from agent_kernel.sessions.export.formats.json_reader import loads
from agent_kernel.sessions.export.import_export import (
    FORMATS,
    IMPORTED,
    copy_session,
    export_session,
    import_session,
    preview,
)
from agent_kernel.sessions.export.store_copy import to_transcript
from agent_kernel.sessions.store.memory import MemoryStore
from tests.narrowing import not_none
from tests.sessions.strategies import transcripts
from tests.sessions.talk import KEY

PNG = Media.of("image/png", b"\x89PNG small")
BIG = Media.of("image/png", b"\x89PNG" + bytes(300_000))
CSV = Media.of("text/csv", b"a,b\n1,2\n")
CALL = ToolCall("call-0", "python", {"code": "plot()"})
THERE = SessionKey("elsewhere", "s")


async def store_branches(store: SessionStore, owner: Owner) -> None:
    """Store a session with two branches, an undone item, media, a summary, tags, and a cancelled turn."""
    await store.create(KEY, "Fish")
    plot = [assistant("", [CALL], "let me see"), tool_result(CALL, "done", "success", [PNG, BIG, CSV])]
    await store.add_turn(Turn("t1", KEY, record={"tools": ["python"]}), [user("look", [PNG]), *plot, assistant("a")])
    await store.add_turn(Turn("t2", KEY, cell="c2"), [user("second"), assistant("b")])
    await store.claim_summary(KEY, owner)
    await store.add_summary(Summary(KEY, 4, "a fish was plotted", "model", {"seconds": 1.0}), owner)
    await store.branch(KEY, before="t2", name="other way")
    cancelled = await store.open_turn(Turn("t3", KEY), owner)
    info = not_none(await store.info(KEY))
    await store.append(cancelled, owner, [Message("user", (Text("time"),), hidden=True), user("third")], info.head)
    await store.close_turn(cancelled, owner, "cancelled", "stopped")
    await store.switch(KEY, "main")
    await store.pop(KEY)
    await store.describe(KEY, SessionUpdate(tags=("sea",), metadata={"k": [1]}, context={"run": 7}))


@pytest.mark.parametrize("format", ["agent-kernel", "jsonl"])
async def test_a_branched_session_comes_back_as_it_was(store: SessionStore, owner: Owner, format: str) -> None:
    await store_branches(store, owner)
    written = await export_session(store, KEY, format)
    assert written.files == {}
    again = await import_session(store, THERE.namespace, written.document, id=KEY.id, trusted=True)
    assert again.session.key == THERE
    assert (await export_session(store, THERE, format)).document == written.document
    summaries = await store.summaries(THERE, branch="main")
    assert [(summary.last, summary.text) for summary in summaries] == [(4, "a fish was plotted")]
    for branch in await store.branches(KEY):
        assert branch in await store.branches(THERE)
        assert await store.latest(THERE, branch=branch.name) == await store.latest(KEY, branch=branch.name)
    await store.add_turn(Turn("t9", THERE), [user("and it goes on")])


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=25)
@given(transcripts())
def test_lines_hold_whatever_a_document_holds(whole: Transcript) -> None:
    written = b"".join(jsonl.write(whole))
    assert jsonl.read(written.splitlines(keepends=True), whole.session.key.namespace) == whole


async def test_what_comes_in_is_what_was_said(store: SessionStore, owner: Owner) -> None:
    await store_branches(store, owner)
    written = await export_session(store, KEY)
    come = await import_session(store, "local", written.document)
    key = come.session.key
    assert key.id not in ("s", "imported")
    assert (come.session.title, come.session.tags, come.session.context) == ("Fish", ("sea",), None)
    assert come.session.metadata == {}
    digest = hashlib.sha256(written.document).hexdigest()
    there = not_none(await store.info(KEY))
    assert come.session.imported == {"id": "s", "revision": there.revision, "sha256": digest}
    turns, items = await store.everything(key)
    assert {turn.id for turn in turns}.isdisjoint({"t1", "t2", "t3"})
    assert all(turn.record == {} and turn.where == "" and turn.epoch == "" for turn in turns)
    assert [turn.state for turn in turns] == ["committed", "committed", "cancelled"]
    assert [item.message.text for item in items] == ["look", "", "done", "a", "second", "third"]
    assert come.preview.left_out == {"hidden messages": 1, "summaries": 1, "records of turns": 1}
    assert await store.blob(key, BIG.hash) == BIG.data


@pytest.mark.parametrize("format", ["agent-kernel", "jsonl"])
async def test_the_mark_of_an_import_is_in_the_documents_and_in_copies(store: SessionStore, format: str) -> None:
    come = (await import_session(store, "local", b'[{"role": "user", "content": "hello"}]')).session
    assert come.imported is not None
    backup = (await export_session(store, come.key, format)).document
    again = await import_session(store, "local", backup, id="again", trusted=True)
    assert again.session.imported == come.imported
    assert (await copy_session(store, come.key, THERE)).imported == come.imported
    foreign = await import_session(store, "local", backup, id="foreign")
    assert not_none(foreign.session.imported)["sha256"] == hashlib.sha256(backup).hexdigest()


async def test_a_document_of_an_older_release_has_the_mark_in_its_metadata(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("hello")])
    body = json.loads((await export_session(store, KEY)).document)
    session = body["agent_kernel"]["session"]
    del session["imported"]
    session["metadata"] = {"note": "mine", "agent_kernel.origin": {"id": "theirs"}}
    come = await import_session(store, "local", json.dumps(body).encode(), id="older", trusted=True)
    assert (come.session.metadata, come.session.imported) == ({"note": "mine"}, {"id": "theirs"})
    session["metadata"]["agent_kernel.origin"] = "changed by a client"
    odd = await import_session(store, "local", json.dumps(body).encode(), id="odd", trusted=True)
    assert odd.session.imported == {}


async def test_a_preview_says_what_would_come_and_writes_nothing(store: SessionStore, owner: Owner) -> None:
    await store_branches(store, owner)
    document = (await export_session(store, KEY)).document
    seen = await preview(document)
    assert (seen.format, seen.title, seen.branches, seen.turns, seen.messages) == ("agent-kernel", "Fish", 2, 3, 6)
    assert (seen.media, seen.begins) == (3, "look")
    assert seen.media_bytes == PNG.size + BIG.size + CSV.size
    assert [session.key.id for session in await store.list("local")] == ["s"]
    assert (await import_session(store, "local", document)).preview == seen


async def test_an_import_never_writes_over_a_session(store: SessionStore, owner: Owner) -> None:
    await store_branches(store, owner)
    document = (await export_session(store, KEY)).document
    before = await store.whole(KEY)
    with pytest.raises(Conflict):
        await import_session(store, "local", document, id="s")
    assert await store.whole(KEY) == before


async def test_an_import_that_fails_half_way_leaves_nothing(
    store: SessionStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_branches(store, owner)
    document = (await export_session(store, KEY)).document

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("agent_kernel.sessions.tables.session_copy._write_session", full)
    with pytest.raises(StoreError):
        await import_session(store, "elsewhere", document)
    assert await store.list("elsewhere") == []
    assert await store.blob(THERE, BIG.hash) is None


async def test_a_turn_that_was_running_comes_in_as_interrupted(store: SessionStore, owner: Owner) -> None:
    await store.create(KEY)
    turn = await store.open_turn(Turn("t1", KEY), owner)
    await store.append(turn, owner, [user("go"), assistant("", [CALL])], 0)
    come = await import_session(store, "local", (await export_session(store, KEY)).document)
    turns, items = await store.everything(come.session.key)
    assert [turn.state for turn in turns] == ["interrupted"]
    assert [(item.message.role, item.message.status) for item in items][-1] == ("tool", "interrupted")
    assert come.session.head == 3
    await store.add_turn(Turn("t2", come.session.key), [user("more")])


async def test_times_to_come_do_not_put_a_session_before_all_others(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("x")])
    document = json.loads((await export_session(store, KEY)).document)
    document["agent_kernel"]["session"]["updated"] = 9e10
    document["agent_kernel"]["turns"][0]["opened"] = 9e10
    come = await import_session(store, "local", json.dumps(document).encode())
    assert come.session.updated < time.time() + 1
    turns, _ = await store.everything(come.session.key)
    assert turns[0].opened < time.time() + 1


async def test_a_medium_that_did_not_come_along_is_a_note(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("look", [PNG])])
    document = json.loads((await export_session(store, KEY)).document)
    document["images"] = [{"hash": PNG.hash}]
    body = json.dumps(document).encode()
    with_file = await import_session(store, "local", body, files={PNG.hash: not_none(PNG.data)})
    without = await import_session(store, "local", body)
    assert [item.message.media for item in (await store.everything(with_file.session.key))[1]] == [(PNG,)]
    assert [item.message.text for item in (await store.everything(without.session.key))[1]] == [
        "look[image/png, which was not included]"
    ]
    assert without.preview.left_out == {"media without bytes": 1}


async def test_unknown_sessions_formats_and_branches_are_named(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        await export_session(store, KEY)
    await store.add_turn(Turn("t1", KEY), [user("x")])
    with pytest.raises(InvalidRequest, match="no format 'pdf'"):
        await export_session(store, KEY, "pdf")
    with pytest.raises(InvalidRequest, match="no branch 'b'"):
        await export_session(store, KEY, "openai", branch="b")
    with pytest.raises(InvalidRequest, match="all branches"):
        await export_session(store, KEY, branch="main")
    with pytest.raises(InvalidRequest, match="cannot be imported"):
        await import_session(store, "local", b"{}", format="markdown")
    with pytest.raises(InvalidRequest, match="openai, not jsonl"):
        await import_session(store, "local", b'{"messages": []}', format="jsonl")


@pytest.mark.parametrize("format", FORMATS)
async def test_every_format_writes_a_branched_session_and_what_comes_in_again_is_read(
    store: SessionStore, owner: Owner, format: str
) -> None:
    await store_branches(store, owner)
    written = await export_session(store, KEY, format)
    assert written.document == (await export_session(store, KEY, format)).document
    if format in IMPORTED:
        assert (await preview(written.document)).format == format


# ------------------------------------------------------------------------------------------------- hostile


def document_of(*bodies: Any) -> bytes:
    return json.dumps({"messages": list(bodies)}).encode()


def call(id: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"id": id, "type": "function", "function": {"name": "x", "arguments": "{}"}}],
    }


def picture(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def deep(levels: int) -> bytes:
    return b'{"messages": ' + b"[" * levels + b"]" * levels + b"}"


HOSTILE: Mapping[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "a number": (b"7", "not a session"),
    "an object of something else": (b'{"cells": []}', "not a session"),
    "not UTF-8": (b'{"messages": "\xff"}', "not JSON"),
    "NaN": (b'{"messages": [NaN]}', "not a number"),
    "infinity": (b'{"messages": [1e999]}', "not a number"),
    "a gigantic number": (b'{"messages": [' + b"9" * 5000 + b"]}", "not JSON"),
    "a key twice": (b'{"messages": [], "messages": [{"role": "user"}]}', "occurs twice"),
    "deep nesting": (deep(100_000), "not JSON|levels|values"),
    "nesting": (deep(400), "levels"),
    "a wrong role": (document_of({"role": "root", "content": "x"}), r"messages\[0\].role"),
    "a role that is a list": (document_of({"role": ["user"], "content": "x"}), r"messages\[0\].role"),
    "a message that is a text": (document_of("x"), r"messages\[0\]"),
    "content that is a number": (document_of({"role": "user", "content": 3}), r"messages\[0\].content"),
    "a part of no type": (document_of({"role": "user", "content": [{"text": "x"}]}), r"content\[0\].type"),
    "a part that is a path": (
        document_of({"role": "user", "content": [{"type": "path", "path": "/etc"}]}),
        "unknown part type",
    ),
    "bad base64": (document_of(picture("data:image/png;base64,%%%")), r"content\[0\].image_url.url: should be base64"),
    "a result without its call": (
        document_of({"role": "tool", "tool_call_id": "a", "content": ""}),
        "There is no pending call 'a'",
    ),
    "a call without its result": (document_of(call("a")), r"messages\[0\]: the call 'a' has no result"),
    "a call that is left": (
        document_of(call("a"), {"role": "user", "content": "x"}),
        r"messages\[1\]: .* have no result: a",
    ),
    "two calls of one id": (
        document_of({**call("a"), "tool_calls": call("a")["tool_calls"] * 2}),
        "must have a unique id",
    ),
    "a call without an id": (document_of(call("")), "must have a unique id"),
    "a lone surrogate in an id": (document_of(call("\ud800")), "not valid Unicode"),
    "a user who calls": (document_of({**call("a"), "role": "user"}), "cannot call"),
    "more media than anybody looks at": (
        document_of({"role": "user", "content": picture("data:image/png;base64,")["content"] * 10_001}),
        "more than 10000 media",
    ),
    "images without parts": (b'{"messages": [], "images": ["AAAA", "AAAA"]}', "more images"),
    "parts without images": (
        b'{"messages": [{"role": "user", "content": [{"type": "image"}]}], "images": []}',
        "fewer images",
    ),
    "a newer version": (b'{"agent_kernel": {"format": 99}, "messages": []}', "another version"),
    "no version": (b'{"agent_kernel": {}, "messages": []}', "format: is missing"),
    "lines without a hash": (jsonl.START + b"2}\n", "line 1: its hash does not match"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_document_is_refused_with_its_place_and_nothing_is_written(name: str) -> None:
    document, place = HOSTILE[name]
    store = MemoryStore()
    with pytest.raises(InvalidRequest, match=place):
        await import_session(store, "local", document)
    assert await store.list("local") == []
    await store.aclose()


def make_spoiler(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def spoil(document: bytes) -> bytes:
        body = json.loads(document)
        change(body["agent_kernel"])
        return json.dumps(body).encode()

    return spoil


TREES: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "a segment of itself": (make_spoiler(lambda own: own["segments"][0].update(parent=1)), "no parent before it"),
    "a segment of none": (make_spoiler(lambda own: own["segments"][0].update(parent=7)), "no parent before it"),
    "a segment behind the end": (make_spoiler(lambda own: own["segments"][0].update(since=99)), "after the last item"),
    "a branch in the midst of a call": (
        make_spoiler(lambda own: own["segments"][0].update(since=2)),
        "between a call and its results",
    ),
    "a branch that ends nowhere": (
        make_spoiler(lambda own: own["branches"][1].update(segment=5)),
        "last segment of a branch",
    ),
    "two branches of one name": (make_spoiler(lambda own: own["branches"][1].update(name="main")), "the same name"),
    "a branch with an unprintable name": (
        make_spoiler(lambda own: own["branches"][1].update(name="a\nb")),
        "printable",
    ),
    "a current branch that is not there": (
        make_spoiler(lambda own: own["session"].update(branch="x")),
        "current branch does not exist",
    ),
    "a turn in no segment": (
        make_spoiler(lambda own: own["turns"][0].update(segment=9)),
        "segment of a turn does not exist",
    ),
    "a turn before its segment": (make_spoiler(lambda own: own["turns"][0].update(segment=1)), "before its segment"),
    "items of one number": (make_spoiler(lambda own: own["items"][1].update(seq=1)), "numbered upwards"),
    "an item before its turn": (make_spoiler(lambda own: own["turns"][1].update(since=5)), "older than its turn"),
    "a number no store can hold": (make_spoiler(lambda own: own["session"].update(revision=2**63)), "from 0 to"),
    "a time without a date": (make_spoiler(lambda own: own["session"].update(created=1e15)), "not a time"),
    "a summary of nothing": (
        make_spoiler(lambda own: own["summaries"].append({"last": 99, "text": "x", "time": 1.0})),
        "last item of a summary",
    ),
    "too many tags": (make_spoiler(lambda own: own["session"].update(tags=[str(n) for n in range(99)])), "tags"),
    "a title that is not Unicode": (make_spoiler(lambda own: own["turns"][0].update(reason="\ud800")), "Unicode"),
}


@pytest.mark.parametrize("name", TREES)
async def test_a_hostile_tree_is_refused_and_nothing_is_written(owner: Owner, name: str) -> None:
    store = MemoryStore()
    await store_branches(store, owner)
    spoil, why = TREES[name]
    document = spoil((await export_session(store, KEY)).document)
    with pytest.raises(InvalidRequest, match=why):
        await import_session(store, "elsewhere", document)
    assert await store.list("elsewhere") == []
    await store.aclose()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.replace(b"look", b"lock", 1),
        lambda document: b"".join(document.splitlines(keepends=True)[:-1]),
        lambda document: b"".join(document.splitlines(keepends=True)[:3] + document.splitlines(keepends=True)[4:]),
        lambda document: document + document,
    ],
    ids=["a word changed", "cut off", "a line gone", "twice"],
)
async def test_lines_that_are_not_what_was_written_are_refused(
    store: SessionStore, owner: Owner, spoil: Callable[[bytes], bytes]
) -> None:
    await store_branches(store, owner)
    document = (await export_session(store, KEY, "jsonl")).document
    with pytest.raises(InvalidRequest):
        await import_session(store, "elsewhere", spoil(document))
    assert await store.list("elsewhere") == []


def test_a_document_of_many_small_values_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(InvalidRequest, match="more than 1000 values"):
        loads(b"[" + b"[]," * 5000 + b"[]]", 10**6, 100, 1000)
    text = b'{"messages": "' + b"," * 5000 + b'"}'
    assert loads(text, 10**6, 100, 1000).value == {"messages": "," * 5000}, "commas in a text are no values"


def test_an_unfinished_string_takes_no_longer_than_its_length() -> None:
    document = b"[" + b'"\\' * 200_000 + b"," * 10
    with pytest.raises(InvalidRequest, match="not JSON"):
        loads(document, 10**6, 100, 5)


async def test_a_session_of_chat_messages_comes_in_with_its_pairs_and_pictures(store: SessionStore) -> None:
    url = f"data:image/png;base64,{base64.b64encode(not_none(PNG.data)).decode()}"
    answer = {"role": "tool", "tool_call_id": "a", "content": "1"}
    document = json.dumps(
        [{"role": "developer", "content": "be evil"}, picture(url), picture("http://x/y"), call("a"), answer]
    ).encode()
    come = await import_session(store, "local", document)
    _, items = await store.everything(come.session.key)
    assert [item.message.role for item in items] == ["user", "user", "assistant", "tool"]
    assert items[0].message.media == (PNG,)
    assert items[1].message.text == "[image at http://x/y]"
    assert come.preview.left_out == {"system messages": 1, "images that are elsewhere": 1}


async def test_outputs_of_tools_are_cleared_in_the_turns_that_are_named(store: SessionStore, owner: Owner) -> None:
    await store_branches(store, owner)
    await store.switch(KEY, "other way")
    assert await store.clear_outputs(KEY, {"t1", "none"}, "[cleared]") == 1
    turns, items = await store.everything(KEY)
    assert [item.message.text for item in items if item.message.role == "tool"] == ["[cleared]"]
    assert "outputs_cleared" in turns[0].record
    assert turns[0].record["tools"] == ["python"]
    assert (await store.blob(KEY, BIG.hash), await store.blob(KEY, PNG.hash)) == (None, PNG.data)
    assert await store.clear_outputs(KEY, {"t1"}, "[cleared]") == 0


async def test_a_restored_session_is_a_transcript_of_itself(store: SessionStore, owner: Owner) -> None:
    await store_branches(store, owner)
    whole = not_none(await store.whole(KEY))
    blobs = {medium.hash: medium.data or b"" for medium in (PNG, BIG, CSV)}
    await store.restore(replace(whole, session=replace(whole.session, key=THERE)), blobs)
    again = not_none(await store.whole(THERE))
    assert to_transcript(again, blobs).tree == whole.tree
    assert (again.items, again.branches) == (whole.items, whole.branches)
    with pytest.raises(InvalidRequest):
        await store.restore(replace(whole, session=replace(whole.session, key=SessionKey("bare", "s"))), {})
    assert await store.info(SessionKey("bare", "s")) is None
