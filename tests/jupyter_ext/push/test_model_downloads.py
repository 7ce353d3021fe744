from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agent_kernel.core.settings import Settings
from jupyter_ext.push.model_downloads import ModelDownload, ModelDownloads
from tests.waiting import until

SETTINGS = Settings()


def command(tmp_path: Path, body: str) -> tuple[str, ...]:
    """Return the command of a program in place of ``agent-kernel``; the program records each start."""
    program = tmp_path / "program.py"
    note = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
    program.write_text(
        f"import json, os, sys, time\n{note}def say(**line): print(json.dumps(line), flush=True)\n{body}"
    )
    return (sys.executable, str(program))


async def read_progress(pull: ModelDownload) -> list[dict[str, Any]]:
    return [dict(line) async for line in pull.follow()]


async def test_progress_is_passed_on_and_the_last_line_is_the_path(tmp_path: Path) -> None:
    body = "print('a library talks')\nsay(type='progress', stage='download', done=1, total=2, note='hub')\n"
    body += "say(type='progress', stage='done', done=0, total=0, note='')\nsay(type='done', path='/m', name='tiny')\n"
    pulls = ModelDownloads(SETTINGS, command(tmp_path, body))
    lines = await read_progress(pulls.start("tiny"))
    assert lines[-1] == {"stage": "done", "path": "/m"}
    assert {"stage": "download", "done": 1, "total": 2, "message": "hub"} in lines
    await pulls.aclose()


async def test_two_who_ask_for_a_model_follow_one_download_and_a_leaving_one_does_not_end_it(tmp_path: Path) -> None:
    body = (
        "say(type='progress', stage='download', done=1, total=2, note='')\ntime.sleep(0.3)\nsay(type='done', path='/m')"
    )
    pulls = ModelDownloads(SETTINGS, command(tmp_path, body))
    async for _ in pulls.start("tiny").follow():
        break
    assert (await read_progress(pulls.start("tiny")))[-1]["stage"] == "done"
    assert (tmp_path / "starts").read_text() == "x"
    await read_progress(pulls.start("tiny"))
    assert (tmp_path / "starts").read_text() == "xx", "one that has ended is started anew"
    await pulls.aclose()


async def test_an_error_of_the_program_is_the_last_line(tmp_path: Path) -> None:
    error = {"code": "pull_failed", "message": "m", "hint": "h", "details": {}}
    pulls = ModelDownloads(SETTINGS, command(tmp_path, f"say(type='error', **{error!r})\nsys.exit(1)"))
    assert (await read_progress(pulls.start("tiny")))[-1] == {"stage": "failed", "error": error}
    await pulls.aclose()


async def test_a_program_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    pulls = ModelDownloads(SETTINGS, command(tmp_path, "sys.exit('no such thing')"))
    error = (await read_progress(pulls.start("tiny")))[-1]["error"]
    assert error["code"] == "pull_failed"
    assert "exit code 1" in error["message"]
    assert "no such thing" in error["details"]["output"]
    await pulls.aclose()


async def test_a_stopping_server_ends_the_download_and_its_readers(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    body = (
        f"open({str(pids)!r}, 'w').write(str(os.getpid()))\nsay(type='progress', stage='download', done=0, total=0)\n"
    )
    pulls = ModelDownloads(SETTINGS, command(tmp_path, f"{body}time.sleep(600)"))
    reader = asyncio.create_task(read_progress(pulls.start("tiny")))
    await until(lambda: pids.exists() and pids.read_text())
    await pulls.aclose()
    assert (await reader)[-1]["stage"] == "failed"
    assert not Path(f"/proc/{pids.read_text()}").exists()


async def test_the_settings_of_the_server_hold_for_the_download(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "cache", sources="wheels")
    names = ["AGENT_KERNEL_CACHE_DIR", "AGENT_KERNEL_SOURCES"]
    body = f"say(type='done', path=json.dumps([sys.argv[1:], *map(os.environ.get, {names!r})]))"
    pulls = ModelDownloads(settings, command(tmp_path, body))
    found = json.loads((await read_progress(pulls.start("tiny")))[-1]["path"])
    assert found == [["model", "pull", "tiny", "--yes", "--json"], str(tmp_path / "cache"), "wheels"]
    await pulls.aclose()
