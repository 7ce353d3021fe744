"""Tests ``%agent tools`` with a local model that writes code in place of calls. No model is loaded."""

from __future__ import annotations

from tests.notebook.notebook import Notebook

SCRIPT: list[dict[str, str]] = []
TRAITS = {"engine": "local", "tool_protocol": "fence", "tools": "python,notebook"}


async def test_a_model_that_calls_only_python_has_it_listed_alone_and_says_how_to_get_the_rest(
    notebook: Notebook,
) -> None:
    shown = (await notebook.run("%agent tools")).all
    table, _, note = shown.partition("writes Python in place of calls and never calls")
    assert [line.split()[0] for line in table.splitlines() if line.startswith(("python", "notebook_cells"))] == [
        "python"
    ]
    assert "notebook_cells" in note
    assert "agent-kernel model pull qwen3-4b" in note
    assert 'tool_protocol = "auto"' in note


async def test_programs_get_all_tools_with_the_ones_that_are_called(notebook: Notebook) -> None:
    [answer] = (await notebook.run("%agent tools --json")).of("application/json")
    assert {tool["name"] for tool in answer["tools"] if tool["called"]} == {"python"}
    assert "notebook_cells" in {tool["name"] for tool in answer["tools"]}


async def test_the_preview_of_a_turn_names_the_tools_that_are_called(notebook: Notebook) -> None:
    await notebook.run("%agent new tools")
    assert "notebook_cells" not in (await notebook.run("%agent context")).plain
