"""Runs the guide to model servers from start to end against a real one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.engines.openai_api.model_servers import ModelServer
from tests.test_layers import ROOT


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_guide_runs_and_its_turn_goes_to_the_server(model_server: ModelServer, tmp_path: Path) -> None:
    engines = {"work": {"url": model_server.url, "model": model_server.model, "context_length": 2048}}
    command = [sys.executable, "-m", "demo", str(ROOT / "notebooks" / "remote_engines.ipynb"), "--into", str(tmp_path)]
    env = {**os.environ, "AGENT_KERNEL_ENGINES": json.dumps(engines), "AGENT_KERNEL_ENGINE": "local"}
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = {
        cell.id: json.dumps(cell.get("outputs")) for cell in nbformat.read(tmp_path / "remote_engines.ipynb", 4).cells
    }
    host = model_server.url.split("/")[2]
    assert "unusable: tools" in outputs["ask"]  # weights of no meaning call nothing
    assert f"(local: {host})" in outputs["use"]
    assert f"(local: {host})" in outputs["turn"]
    assert "talks to coder-" in outputs["reset"]
