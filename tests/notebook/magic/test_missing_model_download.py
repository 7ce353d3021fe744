"""Tests the first turn on a machine that has no model yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agent_kernel.notebook.magic.missing_model_download import ModelDownload
from agent_kernel.notebook.server_client import ServerClient
from tests.notebook.notebook import Notebook
from tests.server import AgentServer

SCRIPT: list[dict[str, str]] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """The local engine with an empty cache. The only source of models is a hub that does not answer."""
    directory = tmp_path_factory.mktemp("server")
    traits = {"engine": "local", "model": "tiny", "cache_dir": str(directory / "cache"), "sources": "hub"}
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    with AgentServer(directory, SCRIPT, traits, env=nowhere) as server:
        yield asyncio.run(server.start())


async def test_without_a_person_the_line_names_the_command(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nhello")
    assert ran.status == "error"
    assert "agent-kernel model pull tiny" in ran.error
    assert "\n" not in ran.error
    assert ran.asked == []


async def test_a_person_is_told_size_source_publisher_and_licence_and_may_refuse(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nhello", ["n"])
    assert ran.asked == ["Download it now? [y]es / [n]o: "]
    offer = " ".join(ran.plain.split())
    assert "MB from" in offer
    assert "published by" in offer
    assert "licence Apache-2.0" in offer
    assert "If this source cannot be reached: 93 MB from" in offer
    assert "Simon Willison" in offer
    assert "agent-kernel model pull tiny" in ran.error


async def test_a_download_that_fails_is_one_line(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nhello", ["y"])
    assert ran.status == "error"
    assert "\n" not in ran.error
    assert ran.error.startswith("Agent: ")
    assert "is not on this machine" not in ran.error, "it was tried"


async def test_the_list_says_what_is_missing(notebook: Notebook) -> None:
    assert "missing" in (await notebook.run("%agent model")).plain


def test_the_description_of_a_model_cannot_control_a_terminal() -> None:
    offer = {
        "name": "org/m",
        "title": "A \x1b[2Jmodel",
        "publisher": "\x1b]0;title\x07somebody\u202e",
        "licence": "MIT",
    }
    described = ModelDownload(ServerClient("http://127.0.0.1:9/", "", ""), None, offer).described
    assert "The model org/m (A model) is not on this machine yet" in described
    assert "published by somebody, licence MIT" in described
