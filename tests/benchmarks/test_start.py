"""Measures what a user waits for before the first word: the start of a server, of the magics, and of a model that was
loaded before.

Run alone on the machine: make bench ARGS="-k test_start -s". Each start is compared, in the same process, with the
start of what would run without agent-kernel.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.benchmarks.conftest import Record
from tests.served import Served
from tests.server import ROOT

RUNS = 5
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SERVE = 5.0
"""Bounds are multiples of the time in which a process imports the library that is needed in any case."""
MODELS = {"coder-0.5b": 12.0, "coder-1.5b": 24.0}
MAGICS = """
import time
at = time.thread_time()
import ipykernel.ipkernel, ipykernel.zmqshell
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
there = time.thread_time()
shell.run_line_magic("load_ext", "agent_kernel")
print([time.thread_time() - there, there - at])
"""
EXTENSION = """
import time
at = time.thread_time()
import jupyter_server.serverapp, jupyter_server.extension.application, jupyter_server.base.handlers
there = time.thread_time()
import jupyter_ext
print([time.thread_time() - there, there - at])
"""


def median_ms(code: str) -> tuple[float, float]:
    """Run ``code`` in new processes, after one run that compiles the modules. The code prints two numbers, seconds of
    processor time. Return their medians in milliseconds.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=env) for _ in range(RUNS + 1)]
    pairs = [json.loads(run.stdout.splitlines()[-1]) for run in runs[1:]]
    ours, base = (1e3 * statistics.median(values) for values in zip(*pairs, strict=True))
    return ours, base


def test_loading_the_magics_takes_little_beside_ipykernel(record: Record) -> None:
    ours, base = median_ms(MAGICS)
    print(f"\n%load_ext agent_kernel: {ours:.0f} ms; ipykernel and IPython's shell {base:.0f} ms")
    record("`%load_ext agent_kernel`, processor time", ours, base, "ms")
    assert ours < base


def test_importing_the_server_extension_takes_little_beside_jupyter_server(record: Record) -> None:
    ours, base = median_ms(EXTENSION)
    print(f"\nimport jupyter_ext: {ours:.0f} ms; jupyter_server {base:.0f} ms")
    record("importing the server extension, processor time", ours, base, "ms")
    assert ours < base


def importing_s(library: str) -> float:
    """Return the median seconds of a process that imports ``library`` and exits."""
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {library}"], check=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def test_serve_answers_health_soon(tmp_path: Path, record: Record) -> None:
    seconds = []
    for number in range(RUNS + 1):
        served = Served(tmp_path / str(number), ({"text": "Hello."},))
        started = time.perf_counter()
        with served:
            served.start()
            # A client of httpx takes a third of a second to make.
            asked = urllib.request.Request(
                f"{served.url}/agent/v1/health", headers={"Authorization": f"Bearer {served.token}"}
            )
            with DIRECT.open(asked, timeout=60) as answer:
                assert answer.status == 200
            seconds.append(time.perf_counter() - started)
    took = statistics.median(seconds[1:])
    base = importing_s("jupyter_server.serverapp")
    print(f"\nagent-kernel serve answers health after {took:.2f} s; importing jupyter_server takes {base:.2f} s")
    record("`agent-kernel serve` answers `health`", took, base, "s")
    assert took < SERVE * base


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param(name, marks=pytest.mark.model(name)) for name in MODELS])
async def test_a_model_starts_soon(model: str, record: Record) -> None:
    """From a request at an engine without a worker to its first text. The run before has stored what is derived from
    the model file, and the file is in the system's cache."""
    seconds = []
    for _ in range(RUNS + 1):
        engine = LocalEngine(model, Settings.from_env().cache_dir)
        request = EngineRequest((user("Say hello."),), sampling=Sampling(max_tokens=4))
        started = time.perf_counter()
        async with aclosing(engine), aclosing(engine.stream(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    seconds.append(time.perf_counter() - started)
                    break
    took = statistics.median(seconds[1:])
    base = await asyncio.to_thread(importing_s, "openvino_genai")
    print(f"\nwarm start of {model}, to the first text: {took:.2f} s; importing the library takes {base:.2f} s")
    record(f"warm start of `{model}`, to the first token", took, base, "s")
    assert took < MODELS[model] * base
