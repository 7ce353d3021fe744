"""Tests the synchronous client: in a thread, inside a running loop, at the exit of the interpreter, and that it has all
methods of the async one.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_kernel import Client, SyncClient, tool
from agent_kernel.client import sync_client
from agent_kernel.core.errors import Conflict, SessionNotFound
from agent_kernel.core.events import ApprovalRequired, TextDelta, TurnFinished
from tests.server import TOKEN, AgentServer

SCRIPT: list[dict[str, Any]] = [
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "word " * 40, "deltas": 40, "delay": 0.02, "when": "slow", "loop": True},
    {"calls": [{"name": "where", "arguments": {}}], "when": "ask me"},
    {"text": "Done.", "when": "ask me"},
    {"calls": [{"name": "order", "arguments": {}}], "when": "in a cell"},
    {"text": "Done.", "when": "in a cell"},
    {"text": "Hello.", "loop": True},
]


@pytest.fixture
def client(server: AgentServer) -> Iterator[SyncClient]:
    with SyncClient(server.url, token=TOKEN) as client:
        yield client


def test_it_runs_streams_and_keeps_sessions_without_any_loop(client: SyncClient, tmp_path: Path) -> None:
    result = client.run("hello")
    events = list(client.stream("slow", session=result.session))
    assert result.text == "Hello."
    assert "".join(event.body.text for event in events if isinstance(event.body, TextDelta)) == "word " * 40
    assert isinstance(events[-1].body, TurnFinished)
    assert client.sessions.get(result.session).turns == 2
    with pytest.raises(SessionNotFound):
        client.sessions.get("nowhere")


def test_objects_that_come_back_are_bridged_too(client: SyncClient, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("hello")
    file = client.files.upload(path)
    assert file.read() == b"hello"
    assert client.files.list()[0].save(tmp_path / "copy.txt").read_text() == "hello"
    result = client.run("hello", files=[file])
    assert [one.id for one in client.files.list(result.session)] == [file.id]


def test_a_turn_that_is_left_is_stopped(client: SyncClient) -> None:
    with client.stream("hang") as turn:
        for event in turn:
            if isinstance(event.body, TextDelta):
                break
    assert client.follow(turn.id).result().state == "cancelled"
    assert "".join(client.stream("slow").texts()) == "word " * 40


async def test_it_works_inside_a_running_loop(client: SyncClient) -> None:
    assert client.run("hello").text == "Hello."
    assert list(client.stream("hello").texts()) == ["Hello."]


def test_many_threads_share_one_client(client: SyncClient) -> None:
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(client.run("hello").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["Hello."] * 8


def test_callbacks_run_beside_the_thread_of_the_client_and_may_use_it(client: SyncClient) -> None:
    asked: list[str] = []

    @tool(effects=True)
    def where() -> str:
        """Says where it runs, and asks the server something meanwhile."""
        return f"{threading.current_thread().name}, {client.health()['status']}"

    def approve(approval: ApprovalRequired) -> bool:
        asked.append(client.health()["status"])
        return True

    assert client.run("ask me", functions=[where], approve=approve).calls[0].text == "tool where, ok"
    assert asked == ["ok"]


def test_the_context_of_the_caller_is_that_of_its_callbacks(client: SyncClient) -> None:
    """By it a notebook knows which cell a line is printed in."""
    import contextvars

    cell = contextvars.ContextVar("cell", default="none")
    cell.set("this one")
    assert client._bridge.run(lambda: _value_of(cell)) == "this one"


async def _value_of(variable: Any) -> Any:
    return variable.get()


def test_a_closed_client_says_so(client: SyncClient) -> None:
    client.close()
    client.close()
    with pytest.raises(Conflict, match="closed"):
        client.health()


def test_a_call_that_waits_when_the_client_is_closed_says_so(client: SyncClient) -> None:
    errors = list[BaseException]()

    def wait() -> None:
        try:
            client.run("hang")
        except Conflict as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    session_count = len(client.list_session_ids())
    thread.start()
    while len(client.list_session_ids()) == session_count:
        time.sleep(0.02)
    client.close()
    thread.join(60)
    assert [type(error) for error in errors] == [Conflict]


def test_a_call_that_does_not_stop_in_time_does_not_leave_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_client, "CLOSE_S", 0.2)
    bridge, begun, errors = sync_client.EventLoopBridge(), threading.Event(), list[BaseException]()

    async def stubborn() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)

    def wait() -> None:
        try:
            bridge.run(stubborn)
        except Conflict as error:
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert begun.wait(60)
    bridge.close()
    thread.join(60)
    assert [type(error) for error in errors] == [Conflict]


def test_its_surface_is_that_of_the_async_client(client: SyncClient) -> None:
    assert set(dir(client)) >= {name for name in dir(Client) if not name.startswith("_")}
    assert inspect.getdoc(client.run) == inspect.getdoc(Client.run)


PROGRAM = """
import sys, threading
from agent_kernel import SyncClient
client = SyncClient({url!r}, token={token!r})
print(client.run("hello").text, flush=True)
{more}
"""


@pytest.mark.parametrize(
    "more",
    [
        "",
        "turn = client.stream('hang'); turn.begin(); print(next(iter(turn)).seq)",
        "thread = threading.Thread(target=lambda: list(client.stream('hang')), daemon=True); thread.start()",
        "raise SystemExit(0)",
    ],
    ids=["idle", "a turn is open", "a thread reads", "sys.exit"],
)
def test_the_end_of_the_interpreter_waits_for_nobody(server: AgentServer, more: str) -> None:
    code = PROGRAM.format(url=server.url, token=TOKEN, more=more)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.startswith("Hello."), done.stderr
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 90


def test_an_interrupt_stops_the_turn(server: AgentServer) -> None:
    code = (
        "import signal, threading, os\n"
        "from agent_kernel import SyncClient\n"
        f"client = SyncClient({server.url!r}, token={TOKEN!r})\n"
        "session = client.sessions.create().id\n"
        "print(session, flush=True)\n"
        "threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    client.run('hang', session=session)\n"
        "except KeyboardInterrupt:\n"
        "    print(client.sessions.turns(session)[0]['state'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split()[1:] == ["cancelled"], done.stderr


CELL = """
import asyncio
from agent_kernel import SyncClient, tool

asyncio.get_running_loop()

@tool(effects=True)
def order() -> str:
    "Orders."
    print("in the function")
    return "ordered"

def approve(approval):
    return input(f"{{approval.name}}? ") == "y"

with SyncClient({url!r}, token={token!r}) as client:
    print(client.run("order it in a cell", functions=[order], approve=approve).calls[0].text)
"""


async def test_a_cell_of_a_notebook_may_use_it_and_ask_its_person(server: AgentServer) -> None:
    """What callbacks print is shown at the cell, and ``input`` asks there, though they run in threads."""
    kernel = await server.start_kernel()
    shown, prompts = [], []
    async with server.kernel(kernel) as client:

        def answer(message: dict[str, Any]) -> None:
            prompts.append(message["content"]["prompt"])
            client.input("y")

        code = CELL.format(url=server.url, token=TOKEN)
        running = client.execute_interactive(
            code,
            output_hook=lambda message: shown.append(message["content"].get("text", "")),
            stdin_hook=answer,
            allow_stdin=True,
        )
        await asyncio.wait_for(running, 100)
    assert (prompts, "".join(shown)) == (["order? "], "in the function\nordered\n")
