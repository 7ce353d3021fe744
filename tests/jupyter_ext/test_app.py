from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_ext
from agent_kernel.core.settings import Settings
from jupyter_ext.app import AgentKernel
from tests.jupyter_ext.conftest import HELLO
from tests.server import ROOT, AgentServer, Json

SHARE = 0.1
"""Of what importing jupyter_server and pydantic takes without the grammar that rfc3987_syntax builds: 0.36 s on a
processor of 2024, where listing takes 11 ms. Every Jupyter command that lists extensions pays it."""
SHARE_OF_PARTS = 1.0
"""Of the same, for all that a server loads besides: some 260 small modules, 0.24 s there. 0.61 to 0.79 was measured,
also with other tests on the second core, which share the caches of the processor."""
MEASURE = """
import json, sys, time
began = time.thread_time()
import jupyter_server.serverapp, jupyter_server.extension.application, jupyter_server.base.handlers
from pydantic import BaseModel, Field, ValidationError
class Body(BaseModel):
    text: str
there = time.thread_time()
import jupyter_ext
listed = time.thread_time()
import jupyter_ext.api.routes, jupyter_ext.services
ready = time.thread_time()
base = there - began
found = {"share": (listed - there) / base, "parts": (ready - there) / base, "modules": sorted(sys.modules)}
print(json.dumps(found))
"""
HEAVY = {"torch", "openvino", "openvino_genai", "transformers", "numpy", "gguf", "httpx", "pandas", "matplotlib"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Measurements of the app's start: for each figure the best of four runs, after one run that compiles the
    modules.
    """
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled"))}
    command = [sys.executable, "-c", MEASURE]
    runs = [subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True, env=env) for _ in range(5)]
    found: list[Json] = [json.loads(run.stdout) for run in runs[1:]]
    return {**found[0], **{name: min(float(one[name]) for one in found) for name in ("share", "parts")}}


def test_listing_the_extension_takes_little_beside_loading_jupyter(measured: Json) -> None:
    assert measured["share"] < SHARE


def test_what_a_server_loads_takes_little_beside_loading_jupyter(measured: Json) -> None:
    assert measured["parts"] < SHARE_OF_PARTS


def test_the_server_imports_nothing_that_runs_models(measured: Json) -> None:
    assert set(measured["modules"]) & HEAVY == set()


def test_every_setting_is_a_trait_with_a_help_text() -> None:
    traits = AgentKernel.class_own_traits(config=True)
    names = {item.name for item in dataclasses.fields(Settings)}
    assert names <= set(traits)
    assert [name for name in names if not traits[name].help] == []


def test_jupyter_finds_the_extension_by_its_package() -> None:
    points = jupyter_ext._jupyter_server_extension_points()
    assert points == [{"module": "jupyter_ext.app", "app": AgentKernel}]


async def test_traits_win_over_variables_and_a_zero_counts(tmp_path: Path) -> None:
    env = {"AGENT_KERNEL_NAMESPACE": "from-env", "AGENT_KERNEL_MAX_TOOL_ROUNDS": "9", "AGENT_KERNEL_PERMISSION": "ask"}
    traits = {"namespace": "team", "max_tool_rounds": 0}
    server = AgentServer(tmp_path / "server", [HELLO], traits=traits, env=env)
    server.directory.mkdir()
    with server:
        await server.start()
        async with server.client() as client:
            assert (await client.get("agent/v1/binding")).json()["namespace"] == "team"
            health = (await client.get("agent/v1/health")).json()
            assert health["status"] == "ok"
            assert health["store"] == {"kind": "sqlite", "state": "ok"}
            assert health["engine"]["model"] == "scripted"


async def test_a_setting_that_makes_no_sense_is_told_and_leaves_the_server_up(tmp_path: Path) -> None:
    server = AgentServer(tmp_path / "server", [HELLO], traits={"permission": "perhaps"})
    server.directory.mkdir()
    with server:
        await server.start()
        async with server.client() as client:
            assert (await client.get("api/status")).status_code == 200
            assert (await client.get("agent/v1/health")).status_code == 404
        assert await server.stop() == 0
        assert "permission must be one of auto, ask, deny, not 'perhaps'" in server.log.read_text()
