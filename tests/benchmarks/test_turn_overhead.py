"""Measures what a turn costs beside the model and its tools, and how much it slows other requests to the server.

One server process per test, with the client in this one. Run alone on the machine: make bench ARGS="-k turn_overhead".
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest
from agent_kernel.engines.scripted import ScriptedEngine
from jupyter_ext.headless.server_process import jupyter_server
from tests.benchmarks.conftest import Record

CALLS = 5
DELTAS = 500
PER_S = 50
CODE = "sum(range(10))"


def script() -> list[dict[str, Any]]:
    """Return a script of five rounds with 100 deltas and a call each, and a closing word: 500 deltas at 50 a second."""
    text = "word " * (DELTAS // CALLS)
    talk = {"text": text, "deltas": DELTAS // CALLS, "delay": 1 / PER_S}
    call = {"name": "python", "arguments": {"code": CODE}}
    return [*[talk | {"calls": [call]}] * CALLS, {"text": "done"}]


@asynccontextmanager
async def client(folder: Path, monkeypatch: pytest.MonkeyPatch, **env: str) -> AsyncIterator[httpx.AsyncClient]:
    for name, value in env.items():
        monkeypatch.setenv(f"AGENT_KERNEL_{name}", value)
    async with (
        jupyter_server(folder, folder / "server.log") as server,
        httpx.AsyncClient(base_url=server.url, headers=server.headers, trust_env=False, timeout=120) as http,
    ):
        yield http


async def server_pid(http: httpx.AsyncClient) -> int:
    """Return the pid of the process that listens on the client's port."""
    port = f":{http.base_url.port:04X}"
    inode = next(
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[1].endswith(port) and fields[3] == "0A"
    )
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
        except OSError:
            continue
        if f"socket:[{inode}]" in links:
            return int(process.name)
    raise LookupError("nobody listens")


def cpu_s(pid: int) -> float:
    """Return the user and system time of one process in seconds, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def lags_of(http: httpx.AsyncClient, prompt: str, **body: Any) -> tuple[list[float], str]:
    """Run one turn. Return the seconds from the creation of each event to its arrival here, and the final state of the
    turn.
    """
    turn = (await http.post("agent/v1/turns", json={"prompt": prompt} | body)).json()["turn"]
    lags: list[float] = []
    state = ""
    async with http.stream("GET", f"agent/v1/turns/{turn}/events") as stream:
        opened = time.time()
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line[6:])
                if event["time"] >= opened:  # earlier ones waited for this reader, not the reader for them
                    lags.append(time.time() - event["time"])
                state = event["data"].get("state", state)
    return lags, state


async def status_times(http: httpx.AsyncClient, until: asyncio.Event | None = None, count: int = 200) -> list[float]:
    """Return the seconds of each ``GET api/status``: ``count`` requests, or as many as fit until the event ``until`` is
    set.
    """
    times: list[float] = []
    while not until.is_set() if until else len(times) < count:
        started = time.perf_counter()
        (await http.get("api/status")).raise_for_status()
        times.append(time.perf_counter() - started)
        await asyncio.sleep(0.01)
    return times


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


async def engine_cpu_s() -> float:
    """Return the CPU seconds that the scripted engine itself needs for the same rounds, in this process."""
    engine = ScriptedEngine(script())
    started = time.process_time()
    for _ in range(CALLS + 1):
        async for _ in engine.stream(EngineRequest((user("go"),))):
            pass
    return time.process_time() - started


async def test_a_turn_of_500_deltas_and_5_calls_costs_little_beside_engine_and_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], record: Record
) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps([*script(), *script()]))
    async with client(tmp_path, monkeypatch, ENGINE="scripted", SCRIPT=str(path)) as http:
        await lags_of(http, "warm up")
        pid = await server_pid(http)
        before = cpu_s(pid)
        lags, state = await lags_of(http, "go")
        turn_s = cpu_s(pid) - before
        before = cpu_s(pid)
        await status_times(http, count=300)
        request_s = (cpu_s(pid) - before) / 300
    engine_s = await engine_cpu_s()
    beyond = turn_s - engine_s
    with capsys.disabled():
        print(
            f"\nturn overhead: {beyond * 1e3:.0f} ms CPU beyond engine and tools ({turn_s * 1e3:.0f} ms in all), "
            f"as much as {beyond / request_s:.0f} GET api/status; "
            f"event lag median {median(lags) * 1e3:.1f} ms, p99 {p99(lags) * 1e3:.1f} ms, {len(lags)} events"
        )
    record("processor time of a turn of 5 calls and 500 deltas", beyond * 1e3, request_s * 1e3, "ms")
    record("from an event to the client that follows it, 99 of 100", p99(lags) * 1e3, None, "ms")
    assert state == "committed"
    assert p99(lags) < 0.030, "the bound of the issue: a person sees words as they come"
    assert beyond / request_s < 400


@pytest.mark.model("tiny")
async def test_the_server_answers_others_while_a_local_turn_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with client(tmp_path, monkeypatch, MODEL="tiny") as http:
        await lags_of(http, "Hello")
        idle = await status_times(http, count=300)
        ended = asyncio.Event()
        watching = asyncio.create_task(status_times(http, until=ended))
        _, state = await lags_of(http, "Tell a long story.", sampling={"max_tokens": 400}, max_tool_rounds=0)
        ended.set()
        busy = await watching
    with capsys.disabled():
        print(
            f"\nGET api/status: idle median {median(idle) * 1e3:.1f} ms, p99 {p99(idle) * 1e3:.1f} ms; during a local "
            f"turn median {median(busy) * 1e3:.1f} ms, p99 {p99(busy) * 1e3:.1f} ms ({len(busy)} requests), "
            f"p99 ratio {p99(busy) / p99(idle):.1f}"
        )
    assert state == "committed"
    assert len(busy) > 100
    assert p99(busy) / p99(idle) < 20
