"""Tests the lists of models for OpenAI's and Anthropic's clients, validated with their types."""

from __future__ import annotations

from anthropic.types import ModelInfo
from openai.types import Model

from jupyter_ext.api.dialects.model_list import (
    ModelFacts,
    ToolFacts,
    anthropic_model,
    anthropic_page,
    openai_model,
    plain_and_agent_models,
)

READY = ModelFacts("default", "Qwen", 1_700_000_000.5, "agent-kernel", "ready", True, "", 8192, {"vision": None})
FAR = ModelFacts("far", "big", 1_700_000_000, "models.example.com", "unloaded", False, "models.example.com")


def test_each_model_is_there_plain_and_as_the_agent_with_what_that_can_use() -> None:
    found = plain_and_agent_models([READY, FAR], ToolFacts(True, 3, 1))
    assert [one["id"] for one in found] == ["default", "far", "agent/default", "agent/far"]
    tools = [(one["tools_available"], one["mcp_tools_count"], one["mcp_servers_connected"]) for one in found]
    assert tools == [(False, 0, 0)] * 2 + [(True, 3, 1)] * 2


def test_openais_four_are_there_beside_what_is_known() -> None:
    told = openai_model(READY)
    assert Model.model_validate(told, strict=True).created == 1_700_000_000
    assert (told["status"], told["context_length"], told["capabilities"]) == ("loaded", 8192, {"vision": None})
    assert (openai_model(FAR)["status"], openai_model(FAR)["context_length"]) == ("unloaded", None)


def test_anthropics_page_has_all_of_them() -> None:
    page = anthropic_page(plain_and_agent_models([READY], ToolFacts()))
    assert [ModelInfo.model_validate(one).id for one in page["data"]] == ["default", "agent/default"]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "default", "agent/default")
    assert anthropic_page([])["first_id"] is None


def test_a_time_is_told_as_anthropic_does() -> None:
    told = anthropic_model(openai_model(READY))
    assert told["created_at"] == "2023-11-14T22:13:20Z"
    assert ModelInfo.model_validate(told).max_input_tokens == 8192
