"""Feeds random and damaged bytes to every parser: only the declared errors are raised."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from agent_kernel.core.errors import AgentKernelError, EngineCrashed, InvalidRequest, ModelBroken
from agent_kernel.core.messages import Media, Message, ToolCall, Usage, assistant, tool_result, user
from agent_kernel.core.protocols import CallChunk, EndChunk, ReasoningChunk, TextChunk, WaitChunk
from agent_kernel.core.session import Item, Session, SessionKey, Turn
from agent_kernel.core.wire import framing
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.worker.messages import chunk_from_json, chunk_to_json
from agent_kernel.engines.local.worker.pipe_framing import encode_frame, read_frames
from agent_kernel.sandbox.host import worker_protocol
from agent_kernel.sessions import serialization
from agent_kernel.sessions.export.transcript import Transcript, export, parse
from tests.soak.conftest import Soak
from tests.soak.hostile import damaged, deep, mutated, text, until_over, value

CALL = ToolCall("call_1", "python", {"code": "print(1)", "deep": [{"a": [1, 2.5, None, "é"]}]})
PNG = Media.of("image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(64)))
CSV = Media.of("text/csv", b"a,b\n1,2\n")
MESSAGES = (
    user("hidden fact", hidden=True),
    user("What is it?"),
    assistant("I look.", [CALL], "Hm."),
    tool_result(CALL, "1", "success", [PNG, CSV]),
    assistant("It is 1."),
)


def document() -> bytes:
    key = SessionKey("local", "session-1")
    turn = Turn("turn-1", key, 1, "committed", cell="c1", opened=1.0, closed=2.0, usage={"seconds": 1.0})
    items = [Item(number, turn.id, message, 1.5) for number, message in enumerate(MESSAGES, 1)]
    blobs = {medium.hash: medium.data or b"" for medium in (PNG, CSV)}
    session = Session(key, "A title", 1.0, 2.0, len(items), 7, 1)
    return export(Transcript(session, (turn,), tuple(items), blobs=blobs)).document


def string(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()


def pair(key: str, kind: int, body: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + body


def gguf(*more: bytes) -> bytes:
    """Return a small GGUF header as a model has it: text, numbers, an array of text, two tensors; and
    ``more`` pairs.
    """
    words = struct.pack("<IQ", 8, 3) + string("a") + string("b") + string("c")
    pairs = [
        pair("general.architecture", 8, string("llama")),
        pair("general.name", 8, string("toy")),
        pair("general.license", 8, string("mit")),
        pair("general.alignment", 4, struct.pack("<I", 32)),
        pair("llama.context_length", 4, struct.pack("<I", 2048)),
        pair("tokenizer.chat_template", 8, string("{{ messages }}")),
        pair("tokenizer.ggml.tokens", 9, words),
        *more,
    ]
    tensors = [string(f"t{number}") + struct.pack("<IQIQ", 1, 32, 8, 34 * number) for number in range(2)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + b"\0" * 68


def hostile_headers() -> list[bytes]:
    """Return headers that random damage would hardly ever produce. If a key occurs twice, the later pair counts."""
    array, number = struct.pack("<IQ", 9, 1), struct.pack("<IQI", 4, 1, 2048)
    return [
        gguf(pair("general.alignment", 4, struct.pack("<I", 0))),
        gguf(pair("general.alignment", 5, struct.pack("<i", -32))),
        gguf(pair("general.alignment", 8, string("32"))),
        gguf(pair("llama.context_length", 9, number)),
        gguf(pair("llama.context_length", 8, string("many"))),
        gguf(pair("llama.context_length", 6, struct.pack("<f", float("inf")))),
        gguf(pair("general.architecture", 9, number)),
        gguf(pair("nested", 9, array * 5_000 + number)),
        gguf(pair("huge", 9, struct.pack("<IQ", 8, 2**63))),
        gguf(pair("huge", 9, struct.pack("<IQ", 4, 2**63))),
        b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63),
    ]


def only(errors: type[Exception], read: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a check that fails for any error except ``errors``."""

    def check(given: Any) -> None:
        try:
            read(given)
        except errors:
            return

    return check


async def frames_of(body: bytes) -> list[Any]:
    reader = asyncio.StreamReader()
    reader.feed_data(body)
    reader.feed_eof()
    return [frame async for frame in read_frames(reader)]


def keeps_messages(given: Message) -> None:
    """Check that a message is the same after a round trip through JSON, as in a store."""
    once = serialization.decode(serialization.encode(given))
    assert serialization.decode(serialization.encode(once)) == once
    assert once.calls == given.calls
    assert once.text == given.text


def keeps_chunks(given: Any) -> None:
    assert chunk_from_json(json.loads(json.dumps(chunk_to_json(given)))) == given


def keeps_frames(given: dict[str, Any]) -> None:
    """Check that any JSON object is received from the pipe as it was sent, except for lone surrogates."""
    assert asyncio.run(frames_of(encode_frame(given))) == [json.loads(encode_frame(given)[4:])]


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
calls = st.builds(ToolCall, plain, plain, st.dictionaries(plain, st.integers() | plain | st.none(), max_size=3))
messages = st.one_of(
    st.builds(user, plain, hidden=st.booleans()),
    st.builds(assistant, plain, st.lists(calls, max_size=3).map(tuple), plain),
    st.builds(tool_result, calls, plain, st.sampled_from(["success", "error", "denied", "timeout", "interrupted"])),
)
usages = st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
chunks = st.one_of(
    st.builds(TextChunk, plain),
    st.builds(ReasoningChunk, plain),
    st.builds(CallChunk, calls),
    st.builds(WaitChunk, plain, st.none() | st.floats(0, 1), st.integers(0, 9)),
    st.builds(EndChunk, st.sampled_from(["stop", "length", "calls"]), usages),
)
done = {"type": "done", "id": 1, "status": "success", "value": "1", "error": None}
media = {"type": "media", "id": 1, "mime": "image/png", "size": 10}
ready = {"type": "ready", "layers": {"mounts": {"required": True, "active": True, "detail": ""}}}
sandbox_frames = st.one_of(mutated(done), mutated(media), mutated(ready)).map(lambda body: json.dumps(body).encode())


def json_bytes(given: Any) -> bytes:
    return json.dumps(given).encode()


DEEP = st.sampled_from([deep(levels) for levels in (100, 221, 5_000, 200_000)])


def gguf_reader(folder: Path) -> Callable[[bytes], object]:
    def read(body: bytes) -> object:
        path = folder / "model.gguf"
        path.write_bytes(body)
        return read_header(path)

    return read


@pytest.mark.soak(0.07)
def test_fuzz_codecs(soak: Soak, tmp_path: Path) -> None:
    right = document()
    parse(right)
    folder = tmp_path / "gguf"
    folder.mkdir()
    read_gguf = gguf_reader(folder)
    read_gguf(gguf())
    anything = st.one_of(st.binary(max_size=400), value.map(json_bytes), DEEP)
    transcripts = st.one_of(anything, damaged(right), mutated(json.loads(right)).map(json_bytes))
    headers = st.one_of(
        st.binary(max_size=200).map(lambda body: b"GGUF" + body), damaged(gguf()), st.sampled_from(hostile_headers())
    )
    worker_frames = st.one_of(anything, damaged(encode_frame({"type": "beat", "running": 1})))
    plan: list[tuple[str, st.SearchStrategy[Any], Callable[[Any], None]]] = [
        ("transcripts", transcripts, only(InvalidRequest, parse)),
        ("model headers", headers, only(ModelBroken, read_gguf)),
        (
            "worker frames",
            anything,
            only(EngineCrashed, lambda body: asyncio.run(frames_of(framing.encode_frame(body)))),
        ),
        ("worker streams", worker_frames, only(EngineCrashed, _read_frames)),
        ("sandbox frames", st.one_of(anything, sandbox_frames), only(framing.FrameError, worker_protocol.decode)),
        ("sandbox heads", st.binary(min_size=5, max_size=5), only(framing.FrameError, _size)),
        ("errors from JSON", st.dictionaries(text, value), only(AgentKernelError, _error)),
        ("messages kept", messages, keeps_messages),
        ("chunks kept", chunks, keeps_chunks),
        ("frames kept", st.dictionaries(plain, st.integers() | text), keeps_frames),
    ]
    soak.begin()
    for number, (name, strategy, check) in enumerate(plan, 1):
        until_over(soak, name, {"given": strategy}, check, soak.seconds * number / len(plan))


def _read_frames(raw: bytes) -> None:
    asyncio.run(frames_of(raw))


def _size(head: bytes) -> int:
    size = framing.decode_head(head, worker_protocol.MAX_JSON, b"J")
    assert size <= worker_protocol.MAX_JSON
    return size


def _error(body: dict[str, Any]) -> None:
    raise chunk_error(body)


def chunk_error(body: dict[str, Any]) -> AgentKernelError:
    """Return the error that the engine raises for a worker's error message."""
    try:
        chunk_from_json({"error": body})
    except AgentKernelError as error:
        json.dumps(error.to_json(), default=str)
        return error
    raise AssertionError("an error became a chunk")
