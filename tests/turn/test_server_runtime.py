"""Tests the parts that are built from settings, and that contradictory settings stop the start with a reason."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from agent_kernel import SessionObserver
from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.session import Turn
from agent_kernel.core.settings import Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sessions.export.jsonl_log import read
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn import server_runtime
from agent_kernel.turn.server_runtime import Runtime, build_engine
from tests.turns import KEY


class Diary(SessionObserver):
    heard: ClassVar[list[str]] = []

    def on_session_save(self, run_id: str, session_id: str, message_count: int) -> None:
        self.heard.append(f"{session_id}: {message_count}")


def settings(tmp_path: Path, **given: str) -> Settings:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "ok", "loop": true}]')
    return Settings.from_env(
        {}, engine="scripted", script=str(script), store="memory", data_dir=str(tmp_path / "data"), **given
    )


async def ask(runtime: Runtime, prompt: str) -> None:
    request = TurnRequest(prompt)
    await runtime.agent(KEY, request).run(request)


async def test_observers_patterns_and_transcripts_come_from_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("an_audit_module")
    module.Diary = Diary  # type: ignore[attr-defined]  # a module of a person's own
    monkeypatch.setitem(sys.modules, "an_audit_module", module)
    monkeypatch.setattr(Diary, "heard", [])
    async with aclosing(
        Runtime.build(
            settings(
                tmp_path,
                observers="an_audit_module:Diary",
                redaction_patterns=r'{"employee": "E\\d{6}"}',
                transcripts=str(tmp_path / "log"),
            )
        )
    ) as runtime:
        await ask(runtime, "E123456 asks")
        assert Diary.heard == ["s1: 2"]
        assert runtime.turn_writer.transcripts is not None
        assert read(runtime.turn_writer.transcripts.path(KEY))[1]["content"] == "[REDACTED:employee] asks"


async def test_redaction_and_transcripts_can_be_off(tmp_path: Path) -> None:
    runtime = Runtime.build(settings(tmp_path, redaction="off", transcripts="off"))
    key = "sk-" + "proj-abcdEFGH0123ijklMNOP"
    async with aclosing(runtime):
        await ask(runtime, key)
        assert (await runtime.store.latest(KEY))[0].message.text == key
        assert runtime.turn_writer.transcripts is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"observers": "no.such.module:Diary"}, "no.such.module:Diary"),
        ({"observers": "agent_kernel.core.errors:NoSuchClass"}, "agent_kernel.core.errors:NoSuchClass"),
        ({"observers": "just_a_name"}, "just_a_name"),
        ({"redaction_patterns": '{"broken": "("}'}, "'broken' is not a valid regular expression"),
        ({"redaction_patterns": '{"all": ".*"}'}, "'all' matches the empty string"),
        ({"redaction_patterns": '{"broken": "("}', "redaction": "off"}, "'broken'"),
    ],
)
def test_what_can_not_be_made_stops_the_start(tmp_path: Path, given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        Runtime.build(settings(tmp_path, **given))


async def test_the_end_of_a_server_ends_a_summary_that_is_being_written(tmp_path: Path) -> None:
    runtime = Runtime.build(settings(tmp_path))
    for number in range(4):
        await ask(runtime, f"question {number}")
    hanging = ScriptedEngine([{"fault": "hang"}])
    asked = asyncio.create_task(runtime.post_turn_tasks.compact(KEY, hanging))
    while not hanging.requests and not asked.done():
        await asyncio.sleep(0)
    await runtime.aclose()
    with pytest.raises(Conflict, match="The server is shutting down"):
        await asked


@pytest.mark.parametrize("engine", ["os:path", "os:getcwd"])
def test_a_setting_that_names_no_class_of_an_engine_is_refused_by_its_name(engine: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"{engine} cannot be created from the settings"):
        build_engine(Settings(engine=engine, data_dir=tmp_path))


async def test_a_turn_survives_that_the_machine_is_suspended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps forward while a turn is open, and recovery looks before the turn has renewed its lease."""
    clock, away = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: clock() + away[0])
    monkeypatch.setattr(server_runtime, "RECOVER_EVERY_S", 1.0)
    given = settings(tmp_path)
    store = SqliteStore(tmp_path / "sessions.db", clock=lambda: time.time())
    async with aclosing(
        Runtime(given, build_engine(given), store, LinuxSandbox(tmp_path / "work", SandboxPolicy.of(given)))
    ) as runtime:
        await runtime.start()
        await store.create(KEY)
        opened = await runtime.turn_writer.begin(Turn("t1", KEY))
        away[0] = 3600.0
        await asyncio.sleep(1.3)  # the first look
        assert await store.heartbeat(opened.turn, runtime.turn_writer.owner)
