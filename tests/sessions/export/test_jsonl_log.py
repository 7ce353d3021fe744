"""Tests the files that are written while turns run: one header, complete lines, no secrets, and no effect on the turn
if writing fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.messages import user
from agent_kernel.core.session import Item, SessionKey
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.export import jsonl_log
from agent_kernel.sessions.export.jsonl_log import LiveTranscripts, read
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.agent_options import TurnServices
from agent_kernel.turn.compaction import Compactor
from agent_kernel.turn.turn_writer import TurnWriter
from tests.scripted import python
from tests.turns import KEY, Recorder


def item(number: int, text: str = "hola") -> Item:
    return Item(number, "t1", user(text), 1.5)


async def ask(transcripts: LiveTranscripts, prompt: str, store: MemoryStore | None = None) -> list[EventBody]:
    store = store or MemoryStore()
    bodies: list[EventBody] = []
    engine = ScriptedEngine([{"calls": [python("abc")]}, {"text": "It is ABC.", "loop": True}])
    agent = Agent(store, engine, KEY, [Recorder()], services=TurnServices(TurnWriter(store, transcripts=transcripts)))
    await agent.turn(TurnRequest(prompt), bodies.append)
    return bodies


async def test_a_turn_is_a_header_its_messages_and_its_end(tmp_path: Path) -> None:
    transcripts = LiveTranscripts(tmp_path / "log")
    await ask(transcripts, "shout")
    lines = read(transcripts.path(KEY))
    assert [line["type"] for line in lines] == ["session", "entry", "entry", "entry", "entry", "turn"]
    assert (lines[0]["version"], lines[0]["id"], lines[0]["namespace"]) == (1, "s1", "local")
    assert [line["role"] for line in lines[1:-1]] == ["user", "assistant", "tool", "assistant"]
    assert (lines[1]["content"], lines[1]["seq"], lines[4]["content"]) == ("shout", 1, "It is ABC.")
    assert (lines[-1]["state"], lines[-1]["model"]) == ("committed", "scripted")
    assert lines[-1]["record"]["calls"]["python"]["count"] == 1


async def test_a_summary_is_a_boundary(tmp_path: Path) -> None:
    store, transcripts = MemoryStore(), LiveTranscripts(tmp_path)
    for number in range(3):
        await ask(transcripts, f"question {number}", store)
    compactor = Compactor(TurnWriter(store, transcripts=transcripts))
    made = await compactor.compact(KEY, ScriptedEngine([{"text": "They shout."}]))
    assert made is not None
    last = read(transcripts.path(KEY))[-1]
    assert (last["type"], last["last"], last["content"]) == ("compact_boundary", made.last, "They shout.")


async def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    transcripts = LiveTranscripts(tmp_path / "log")
    await transcripts.append_items(KEY, [item(1)])
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "log", transcripts.path(KEY))]
    assert modes == [0o700, 0o600]


async def test_keys_are_redacted_and_other_messages_are_not(tmp_path: Path) -> None:
    key = "sk-" + "proj-abcdEFGH0123ijklMNOP"
    transcripts, store = LiveTranscripts(tmp_path), MemoryStore()
    await ask(transcripts, f"my key is {key}", store)
    await ask(transcripts, "hello", store)
    texts = [line.get("content") for line in read(transcripts.path(KEY))]
    assert "my key is [REDACTED:openai_key]" in texts
    assert "hello" in texts
    assert key.encode() not in transcripts.path(KEY).read_bytes()


async def test_many_first_writers_make_one_header(tmp_path: Path) -> None:
    several = [LiveTranscripts(tmp_path) for _ in range(4)]
    await asyncio.gather(*(several[n % 4].append_items(KEY, [item(n)]) for n in range(16)))
    lines = read(several[0].path(KEY))
    assert [line["type"] for line in lines] == ["session"] + ["entry"] * 16
    assert sorted(line["seq"] for line in lines[1:]) == list(range(16))
    assert list(tmp_path.iterdir()) == [several[0].path(KEY)]


WRITE = """
import asyncio, sys
from pathlib import Path
from agent_kernel.core.messages import user
from agent_kernel.sessions.export.jsonl_log import LiveTranscripts
from agent_kernel.core.session import Item, SessionKey
async def main():
    transcripts = LiveTranscripts(Path(sys.argv[1]))
    for number in range(20):
        await transcripts.append_items(SessionKey("local", "s1"), [Item(number, "t", user("x" * 5000), 0.0)])
asyncio.run(main())
"""


def test_processes_write_whole_lines_behind_one_header(tmp_path: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)]) for _ in range(3)]
    assert [child.wait(timeout=60) for child in running] == [0, 0, 0]
    [file] = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_bytes().splitlines() if line]
    assert [line["type"] for line in lines] == ["session"] + ["entry"] * 60


async def test_a_torn_last_line_spoils_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    transcripts = LiveTranscripts(tmp_path)
    await transcripts.append_items(KEY, [item(1)])
    with transcripts.path(KEY).open("ab") as file:
        file.write(b'{"type":"entry","seq":2,"con')
    await transcripts.append_items(KEY, [item(3)])
    assert [line.get("seq") for line in read(transcripts.path(KEY))] == [None, 1, 3]
    assert "line 3" in caplog.text


async def test_without_hard_links_there_is_one_header_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    transcripts = LiveTranscripts(tmp_path)
    await asyncio.gather(*(transcripts.append_items(KEY, [item(n)]) for n in range(4)))
    assert [line["type"] for line in read(transcripts.path(KEY))] == ["session"] + ["entry"] * 4


async def test_a_failure_harms_no_turn_and_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the directory should be")
    transcripts, store = LiveTranscripts(tmp_path / "log"), MemoryStore()
    told = [body for _ in range(3) for body in await ask(transcripts, "shout", store) if isinstance(body, Notice)]
    assert len(told) == 1
    assert "cannot be written" in told[0].text
    assert len(await store.latest(KEY)) > 4


async def test_what_is_private_has_no_transcript(tmp_path: Path) -> None:
    transcripts = LiveTranscripts(tmp_path)
    await transcripts.append_items(SessionKey("local", "private:session-1"), [item(1)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("id", ["../../etc/passwd", ".", "..", "a" * 512, "Case", "case", "üñ/\\:*?", " ", "CON"])
async def test_any_id_has_a_file_of_its_own_in_the_directory(tmp_path: Path, id: str) -> None:
    transcripts = LiveTranscripts(tmp_path)
    await transcripts.append_items(SessionKey("local", id), [item(1)])
    await transcripts.append_items(SessionKey("other", id), [item(1)])
    files = list(tmp_path.iterdir())
    assert len({file.name.lower() for file in files}) == 2
    assert all(not file.name.startswith(".") for file in files)


async def test_a_file_can_be_forgotten_and_a_missing_one_has_no_lines(tmp_path: Path) -> None:
    transcripts = LiveTranscripts(tmp_path)
    await transcripts.append_items(KEY, [item(1)])
    assert transcripts.forget(KEY)
    assert not transcripts.forget(KEY)
    assert jsonl_log.read(transcripts.path(KEY)) == []
