"""Makes the files that test ``agent-kernel sessions copy openai-agents:FILE``, and writes beside each what the SDK
itself reads from it: ``python -m tests.peers.agents_sdk.sample_files DIRECTORY`` in an environment with the SDK.

The files in tests/sessions/data/frameworks were made by this program with openai-agents 0.24.0.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool
from agents.extensions.memory.advanced_sqlite_session import AdvancedSQLiteSession
from agents.extensions.memory.sqlalchemy_session import SQLAlchemySession
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage

PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2).decode()
USAGE = Usage(requests=1, input_tokens=7, output_tokens=3, total_tokens=10)
LOOK: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is there? Ä 漢"},
            {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
        ],
    },
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
    {"role": "assistant", "content": "A picture."},
    {"role": "user", "content": "And now?"},
    {"type": "function_call", "id": "fc", "call_id": "waits", "name": "guarded", "arguments": "{}"},
]


@function_tool
def measure(place: str) -> str:
    return f"2 mm at {place}"


def rain_agent(*answers: str) -> Agent[Any]:
    steps: list[Any] = []
    for number, answer in enumerate(answers):
        call = function_call("measure", '{"place": "here"}', call_id=f"c{number}-{answer}", item_id=f"fc{number}")
        steps += [[call], [assistant_message(answer, item_id=f"m{number}")]]
    return Agent(name="rain", model=ScriptedModel(steps, default_usage=USAGE), tools=[measure])


async def simple(path: Path) -> dict[str, Any]:
    """Write two sessions of SQLiteSession: one with a run, one with items of all kinds. Return what the SDK reads."""
    read = {}
    for id in ("rain", "support:42 ü"):
        session = SQLiteSession(id, path)
        if id == "rain":
            for question in ("How much rain?", "Sure?"):
                await Runner.run(rain_agent(f"2 mm ({question})"), question, session=session)
        else:
            await session.add_items(LOOK)
        read[id] = {"main": await session.get_items()}
        session.close()
    return read


async def advanced(path: Path) -> dict[str, Any]:
    """Write a session with branches: ``snow`` begins before the second question, ``hail`` within ``snow``. Return what
    the SDK reads.
    """
    session = AdvancedSQLiteSession(session_id="rain", db_path=path, create_tables=True)
    for question in ("How much rain?", "And yesterday?"):
        result = await Runner.run(rain_agent(f"2 mm ({question})"), question, session=session)
        await session.store_run_usage(result)
    await session.create_branch_from_turn(2, "snow")
    for question in ("How much snow?", "And yesterday?"):
        result = await Runner.run(rain_agent(f"none ({question})"), question, session=session)
        await session.store_run_usage(result)
    await session.create_branch_from_turn(3, "hail")
    await Runner.run(rain_agent("no hail"), "How much hail?", session=session)
    await session.switch_to_branch("main")
    await session.add_items([{"role": "user", "content": "Thank you."}])
    read = {name: await session.get_items(branch_id=name) for name in ("main", "snow", "hail")}
    session.close()
    return {"rain": read}


async def sqlalchemy(path: Path) -> dict[str, Any]:
    session = SQLAlchemySession.from_url("rain", url=f"sqlite+aiosqlite:///{path}", create_tables=True)
    await Runner.run(rain_agent("2 mm"), "How much rain?", session=session)
    read = {"rain": {"main": await session.get_items()}}
    await session.engine.dispose()
    return read


async def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for make in (simple, advanced, sqlalchemy):
        path = directory / f"openai_agents_{make.__name__}.db"
        path.unlink(missing_ok=True)
        read = await make(path)
        with closing(sqlite3.connect(path)) as db:  # one file, without a journal beside it
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("VACUUM")
        path.with_suffix(".json").write_text(json.dumps(read, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
