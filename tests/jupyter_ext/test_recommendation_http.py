"""Tests which models are recommended for the server's machine, for the panel."""

from __future__ import annotations

import json
from pathlib import Path

from agent_kernel.engines.local.catalog.installed_model import models_dir
from agent_kernel.engines.local.catalog.measured_speed import SPEEDS_FILE
from jupyter_ext.api.native.models import recommendation
from tests.server import AgentServer


def test_each_model_comes_with_its_memory_and_a_measured_speed_is_named_so(tmp_path: Path) -> None:
    speeds = models_dir(tmp_path) / SPEEDS_FILE
    speeds.parent.mkdir(parents=True)
    speeds.write_text(json.dumps({"coder-0.5b": 31.4}))
    found = recommendation(tmp_path)
    rows = {row["name"]: row for row in found["models"]}
    assert (rows["coder-0.5b"]["tokens_per_s"], rows["coder-0.5b"]["speed_basis"]) == (31.4, "measured")
    assert all(row["memory_bytes"] > 0 for row in rows.values())
    assert found["recommended"] in rows


async def test_the_recommendation_names_a_model_of_the_list_of_models(server: AgentServer) -> None:
    async with server.client() as person:
        found = (await person.get("agent/v1/recommendation")).json()
        known = {model["name"] for model in (await person.get("agent/v1/models")).json()["models"]}
    assert found["recommended"] in known
    assert found["machine"]["cores"] >= 1
