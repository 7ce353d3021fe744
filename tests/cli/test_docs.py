"""Tests ``agent-kernel docs``: it lists, searches and shows the pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

DOCS = Path(__file__).parents[2] / "docs"


def test_all_pages_are_listed_with_their_titles(command: Command) -> None:
    rows = json.loads(command("docs", "--json").out)
    assert [row["page"] for row in rows] == sorted(path.stem for path in DOCS.glob("*.md"))
    assert {row["page"]: row["title"] for row in rows}["terminal"] == "In a terminal"
    assert "To read a page: agent-kernel docs PAGE" in command("docs").out


@pytest.mark.parametrize("name", ["terminal", "terminal.md", "docs/terminal.md", "in a terminal"])
def test_a_page_is_shown_by_its_name_or_its_title(command: Command, name: str) -> None:
    text = (DOCS / "terminal.md").read_text("utf-8")
    assert command("docs", *name.split()).out == f"{text}\n"
    assert json.loads(command("docs", name, "--json").out)["text"] == text


def test_words_find_the_pages_with_all_of_them_and_the_section(command: Command) -> None:
    rows = json.loads(command("docs", "standard", "INPUT", "3 seconds", "--json").out)
    assert [(row["page"], row["section"]) for row in rows] == [("terminal", "Data from another program")]
    assert "Data from another program" in command("docs", "standard", "input", "3 seconds").out


def test_words_that_no_page_has_are_an_error_that_names_a_similar_page(command: Command) -> None:
    ended = command("docs", "sandbx")
    assert (ended.status, ended.out) == (1, "")
    assert "No page of the documentation has 'sandbx'. Did you mean agent-kernel docs sandbox?" in ended.err
