"""Tests the whole runner against a real server and a real kernel; only the model is scripted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.test_layers import ROOT

CALL = {"text": "", "calls": [{"name": "python", "arguments": {"code": "answer = 6 * 7\nanswer"}}]}
pytestmark = pytest.mark.slow


async def start_demo(
    folder: Path, cells: Sequence[str], script: Sequence[dict[str, Any]]
) -> asyncio.subprocess.Process:
    (folder / "script.json").write_text(json.dumps(script))
    nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), folder / "talk.ipynb")
    env = {"AGENT_KERNEL_ENGINE": "scripted", "AGENT_KERNEL_SCRIPT": str(folder / "script.json")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "demo", str(folder / "talk.ipynb"), "--into", str(folder / "out")),
        cwd=ROOT,
        env=os.environ | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def wait_for_end(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_a_notebook_is_run_saved_and_its_turns_reported(tmp_path: Path) -> None:
    cells = ["%agent allow live", "%%agent\nSix by seven?", "answer + 1"]
    code, output = await wait_for_end(await start_demo(tmp_path, cells, [CALL, {"text": "It is 42."}]))
    assert code == 0, output
    written = nbformat.read(tmp_path / "out" / "talk.ipynb", as_version=4)
    assert written.cells[2].outputs[0].data["text/plain"] == "43"
    sidecar = json.loads((tmp_path / "out" / "talk.agent.json").read_text())
    assert "It is 42." in json.dumps(sidecar)
    report = output[output.index("1st token") :]
    assert "committed" in report
    assert "It is 42." in report


async def test_a_failed_turn_is_the_exit_code_and_ends_the_run(tmp_path: Path) -> None:
    cells = ["%%agent\nHello", "print('not reached')"]
    code, output = await wait_for_end(
        await start_demo(tmp_path, cells, [{"text": "Hel", "fault": "the model is unwell"}])
    )
    assert code == 1, output
    assert "failed" in output[output.index("1st token") :]
    assert "not reached" not in output.replace("print('not reached')", "")


async def test_a_plain_cell_that_raises_is_the_exit_code(tmp_path: Path) -> None:
    code, output = await wait_for_end(await start_demo(tmp_path, ["1 / 0"], [{"text": "-"}]))
    assert code == 1, output
    assert "ZeroDivisionError" in output


async def test_ctrl_c_stops_the_server_and_says_so_in_one_line(tmp_path: Path) -> None:
    slow = [{"text": "word " * 500, "deltas": 500, "delay": 0.2}]
    process = await start_demo(tmp_path, ["%%agent\nTalk"], slow)
    assert process.stdout is not None
    url = ""
    async for line in process.stdout:
        url = url or next((word for word in line.decode().split() if word.startswith("http://")), "")
        if b"word word" in line or b"Talk" in line:
            break
    process.send_signal(signal.SIGINT)
    code, output = await wait_for_end(process)
    assert code == 130, output
    assert "Traceback" not in output
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)
