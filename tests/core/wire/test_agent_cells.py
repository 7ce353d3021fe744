from __future__ import annotations

import pytest

from agent_kernel.core.wire.agent_cells import is_agent_cell, is_agent_code, prompt_of

ASK = {"agent_kernel": {"ask": True}}


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        ("> what is in df?", "what is in df?"),
        (">no space", "no space"),
        ("\n  > one\n  > two\n>\n> three", "one\ntwo\n\nthree"),
        ("> Explain this:\n>>> df.head()\nand this", "Explain this:\n>>> df.head()\nand this"),
        ("> -m is an option", "-m is an option"),
        (">> quoted", "> quoted"),
        (">", ""),
        (">>> x = 1", None),
        ("x > 1", None),
        ("# a comment\n> no prompt", None),
        ("%%agent\n> quoted", None),
        ("", None),
    ],
)
def test_the_prompt_is_the_text_behind_the_sign_on_every_line(source: str, prompt: str | None) -> None:
    got = prompt_of(source)
    assert got == prompt if prompt is None or got is None else got.lstrip("\n") == prompt


def test_a_cell_that_was_switched_to_ask_is_a_prompt_as_it_is() -> None:
    assert prompt_of("Plot df", ASK) == "Plot df"
    assert prompt_of("> Plot df", ASK) == "Plot df"
    assert prompt_of("%%agent --in live\nPlot df", ASK) is None
    assert is_agent_cell("%%agent --in live\nPlot df", ASK)


@pytest.mark.parametrize(
    "metadata", [None, {}, [], "ask", {"agent_kernel": True}, {"agent_kernel": {"ask": "true"}}, {"ask": True}]
)
def test_any_other_metadata_make_no_prompt(metadata: object) -> None:
    assert prompt_of("Plot df", metadata) is None


@pytest.mark.parametrize(
    ("source", "starts_turn", "of_agent"),
    [
        ("%%agent hello", True, True),
        ("> hello", True, True),
        ("%agent status", False, True),
        ("%agent_draft abc", False, True),
        ("%%agents", False, False),
        ("x = 1", False, False),
        ("!ls > file", False, False),
    ],
)
def test_a_turn_and_a_command_are_told_apart_from_code(source: str, starts_turn: bool, of_agent: bool) -> None:
    assert is_agent_cell(source) is starts_turn
    assert is_agent_code(source) is of_agent
