"""Tests the temporary Jupyter server: the system gives it a free port, and its files stay in its folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from jupyter_ext.headless.server_process import jupyter_server


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
