"""Tests what the panel offers after ``@``: the variables of a notebook's kernel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ext.api.native.kernel_variables import parse_inspection
from tests.server import AgentServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    server = AgentServer(tmp_path, [{"text": "ok", "loop": True}])
    asyncio.run(server.start())
    yield server
    server.sweep()


def test_lines_of_an_inspection_become_names_with_what_they_hold() -> None:
    text = "df: DataFrame, 2 rows\nname: str, 3 characters: 'a: b'\nand 3 more: x, y, z\nmodules: os, sys"
    assert parse_inspection(text) == [
        {"name": "df", "summary": "df: DataFrame, 2 rows"},
        {"name": "name", "summary": "name: str, 3 characters: 'a: b'"},
    ]


async def test_a_person_sees_variables_of_an_idle_kernel_and_is_told_when_it_is_busy(server: AgentServer) -> None:
    kernel = await server.start_kernel("a.ipynb")
    async with server.client() as client, server.kernel(kernel) as shell:
        await server.run_in_kernel(kernel, "rain = [1, 2, 3]; import os")
        told = (await client.get(f"agent/v1/binding/variables?kernel={kernel}")).json()
        assert [one["name"] for one in told["variables"]] == ["rain"]
        assert "list" in told["variables"][0]["summary"]
        one = (await client.get(f"agent/v1/binding/variables?kernel={kernel}&name=rain")).json()["variables"]
        assert [found["name"] for found in one] == ["rain"]
        gone = (await client.get(f"agent/v1/binding/variables?kernel={kernel}&name=snow")).json()
        assert gone["variables"] == []
        forged = await client.get(f"agent/v1/binding/variables?kernel={kernel}&name=rain.__class__")
        assert forged.json()["variables"] == []
        shell.execute("import time; time.sleep(30)")
        until = time.monotonic() + 20
        while not (busy := (await client.get(f"agent/v1/binding/variables?kernel={kernel}")).json())["problem"]:
            assert time.monotonic() < until
        assert busy["variables"] == []
        assert "busy" in busy["problem"]
