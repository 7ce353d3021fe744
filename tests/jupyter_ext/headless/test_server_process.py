"""Tests the temporary Jupyter server: the system gives it a free port, and its files stay in its folder."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from jupyter_ext.headless.server_process import jupyter_server
from tests.processes import descendants, survivors
from tests.server import ROOT


async def test_servers_that_start_at_once_have_ports_and_directories_of_their_own(
    tmp_path: Path,
) -> None:
    async def serve(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        async with jupyter_server(folder, tmp_path / f"{name}.log") as server:
            assert await server.call("GET", "api/kernels") == []
            [information] = (folder / ".data" / "runtime").glob("jpserver-*.json")
            assert json.loads(information.read_text())["url"] == server.url
        return server.url

    urls = await asyncio.gather(serve("one"), serve("two"))
    assert len({*urls}) == 2


STARTS = """
import asyncio, sys
from pathlib import Path
from jupyter_ext.headless.server_process import jupyter_server
from tests.processes import descendants, survivors
from tests.server import ROOT

async def main():
    folder = Path(sys.argv[1])
    async with jupyter_server(folder, folder / "log") as server:
        await server.call("POST", "api/kernels", {"name": "python3"})
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_server_whose_program_is_killed_ends_with_its_kernels(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTS, tmp_path, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert program.stdout is not None
    assert await program.stdout.readline() == b"ready\n"
    family = descendants(program.pid)
    assert len(family) > 1
    program.kill()
    await program.wait()
    assert await survivors(family, 20) == []
