"""Tests every defect of a model: each gives one clear error with a next step, over HTTP and in a cell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local.model_sources import Hub, model_files, running, write_gguf
from tests.notebook.notebook import Notebook
from tests.server import AgentServer, followed

SCRIPT: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Case:
    """One defect. ``model`` is a name in the folder of models, unless it is not a path."""

    model: str
    code: str
    words: str
    next_step: str


CASES = [
    Case("./nowhere.gguf", "unknown_model", "no model file", "catalog name"),
    Case("tyni", "unknown_model", "'tyni'", "To see the models"),
    Case("org/nothing", "unknown_model", "no model org/nothing", "spelling"),
    Case("tiny", "model_missing", "not on this machine", "agent-kernel model pull tiny"),
    Case("org/good", "model_missing", "licence apache-2.0", "agent-kernel model pull org/good"),
    Case("org/gated", "pull_failed", "org/gated is gated", "HF_TOKEN"),
    Case("org/pickled", "model_unsupported", "only pickled weights", "another model"),
    Case("org/pieces", "model_unsupported", "2 GGUF files", "one file"),
    Case("text.gguf", "model_broken", "does not start with GGUF", "again"),
    Case("cut.gguf", "model_broken", "the file ends after", "again"),
    Case("other.gguf", "model_unsupported", "not starcoder2", "safetensors"),
    Case("cut", "model_broken", "not a complete safetensors file", "again"),
    Case("pickled", "model_broken", "only pickled weights", "safe_serialization"),
    Case("whole", "engine_error", "cannot be imported in this environment", "agent-kernel model setup"),
    Case("huge", "out_of_memory", "Not enough memory for huge", "smaller model"),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running(Hub()) as hub:
        hub.publish("org/good", model_files(tmp_path_factory.mktemp("good") / "m"))
        hub.publish("org/gated", {})
        hub.refusals["org/gated"] = (403, "GatedRepo")
        hub.publish("org/pickled", {"config.json": b"{}", "pytorch_model.bin": b"x"})
        hub.publish("org/pieces", {f"m-Q8_0-0000{number}-of-00002.gguf": b"x" for number in (1, 2)})
        hub.publish("org/large", {"m-Q8_0.gguf": b"x"})
        hub.listings["/api/models/org/large"]["siblings"][0]["size"] = 10**15
        yield hub


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "text.gguf").write_text("hello")
    write_gguf(folder / "whole.gguf")
    (folder / "cut.gguf").write_bytes((folder / "whole.gguf").read_bytes()[:-500])
    write_gguf(folder / "other.gguf", architecture="starcoder2")
    for name in ("cut", "pickled", "huge", "whole"):
        model_files(folder / name)
    whole = (folder / "cut" / "model.safetensors").read_bytes()
    (folder / "cut" / "model.safetensors").write_bytes(whole[:-1])
    (folder / "pickled" / "model.safetensors").rename(folder / "pickled" / "pytorch_model.bin")
    os.truncate(folder / "huge" / "model.safetensors", 2**40)  # a hole: it takes no space
    return folder


@pytest.fixture(scope="module")
def server(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """The local engine with an empty cache."""
    directory = tmp_path_factory.mktemp("server")
    traits = {"engine": "local", "model": "default", "cache_dir": str(directory / "cache")}
    nowhere = {"HF_ENDPOINT": hub.url, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    server = AgentServer(directory, SCRIPT, traits, env=nowhere)
    asyncio.run(server.start())
    yield server
    server.sweep()


def model_name(case: Case, models: Path) -> str:
    return str(models / case.model) if (models / case.model).exists() else case.model


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
async def test_over_http_the_turn_ends_with_the_error(server: AgentServer, models: Path, case: Case) -> None:
    async with server.client() as user:
        body = {"prompt": "hello", "model": model_name(case, models)}
        started = await user.post("agent/v1/turns", json=body)
        if started.status_code == 202:
            end = (await followed(user, started.json()["turn"]))[-1]["data"]
            assert end["state"] == "failed"
            error = end["error"]
        else:
            error = started.json()["error"]
    assert error["code"] == case.code
    assert case.words in error["message"]
    assert case.next_step in f"{error['message']} {error['hint']}"
    assert "Traceback" not in str(error)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
async def test_in_a_cell_it_is_one_line(notebook: Notebook, models: Path, case: Case) -> None:
    ran = await notebook.run(f"%%agent --model {model_name(case, models)}\nhello")
    assert ran.status == "error"
    assert "\n" not in ran.error
    assert case.words in ran.error
    assert case.next_step in ran.error


async def test_a_disk_that_is_too_small_is_told_before_anything_is_downloaded(server: AgentServer, hub: Hub) -> None:
    async with server.client() as user:
        pulled = await user.post("agent/v1/models/org%2Flarge/pull", json={"consent": True})
    assert '"pull_failed"' in pulled.text
    assert "Not enough space" in pulled.text
    assert "AGENT_KERNEL_CACHE_DIR" in pulled.text
    assert not hub.ranges_asked


async def test_what_is_no_model_is_never_pulled(server: AgentServer) -> None:
    async with server.client() as user:
        for name in ("..%2F..%2Fetc", "--yes", "%2Fetc%2Fpasswd", "org%2F..", "https:%2F%2Fx%2Fy"):
            refused = await user.post(f"agent/v1/models/{name}/pull", json={"consent": True})
            assert refused.status_code == 404, name


async def test_a_person_pulls_a_model_of_a_hub_from_a_cell(notebook: Notebook) -> None:
    ran = await notebook.run("%agent model pull org/good", ["y"])
    assert ran.asked == ["Download it now? [y]es / [n]o: "]
    assert "org, on the hub" in ran.plain
    assert "licence apache-2.0" in ran.plain
    assert "org/good is ready" in ran.plain
    again = await notebook.run("%agent model pull org/good")
    assert "is already on this machine" in again.plain


async def test_unloading_what_is_not_loaded_says_so(notebook: Notebook) -> None:
    ran = await notebook.run("%agent unload")
    assert ran.status == "ok"
    assert "unloaded" in ran.plain or "failed" in ran.plain
