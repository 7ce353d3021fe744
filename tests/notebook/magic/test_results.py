"""Tests ``%%agent -> name: type`` in a real kernel: the variable is set from the last program, or from the answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notebook.magic.test_magic import python
from tests.notebook.notebook import Notebook

TRAITS = {"python_in": ""}
SETUP = """import pandas as pd
from dataclasses import dataclass
@dataclass
class City:
    name: str
    size: int
df = pd.DataFrame({'kind': ['a', 'b', 'b'], 'mass': [1.5, 2.5, 3.5]})
kept = 'as it was'"""
TABLE = "heavy = df[df.mass > 2]\nheavy"

SCRIPT: list[dict[str, Any]] = [
    {"when": "count the rows", "calls": [{"name": "python", "arguments": {"code": "print(f'Rows: {len(df)}')"}}]},
    {"when": "count the rows", "text": '{"value": 4}'},
    {"when": "guess a number", "text": '{"value": 42}'},
    {"when": "say it in words", "text": "about forty"},
    {"when": "name a city", "text": '{"name": "Bergen", "size": 289330}'},
    {"when": "just answer", "text": "It is Gentoo."},
    python(TABLE, "filter the rows live"),
    {"when": "filter the rows live", "text": "Two rows."},
    python(TABLE, "filter the rows here"),
    {"when": "filter the rows here", "text": "Two rows."},
    {"when": "no table at all", "text": "I have no table."},
    python("found = City('Oslo', 1)\nfound", "make one of mine"),
    {"when": "make one of mine", "text": "Made."},
    python("{City: 3}", "only in the draft"),
    {"when": "only in the draft", "text": '{"value": {"a": 1}}'},
    python("kept = 'changed'\n1 / 0", "fail at it"),
    {"when": "fail at it", "text": '{"value": 5}'},
    {"when": "use the number", "calls": [{"name": "python", "arguments": {"code": "count + 1"}}]},
    {"when": "use the number", "text": '{"value": 0}'},
    {"when": "the first of two", "text": '{"value": 1}', "loop": True},
]


@pytest.fixture
async def kernel(notebook: Notebook) -> Notebook:
    assert (await notebook.run(SETUP)).status == "ok"
    return notebook


async def value(notebook: Notebook, code: str) -> str:
    return (await notebook.run(code)).plain


async def test_a_value_that_the_program_computed_wins_over_the_answer(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> rows: int\ncount the rows", [])
    assert ran.status == "ok", ran.error
    assert ran.asked == []
    assert "rows: int = 3 (computed)" in ran.plain
    assert await value(kernel, "rows, type(rows).__name__") == "(3, 'int')"


async def test_an_answer_without_a_program_is_read_as_the_type(kernel: Notebook) -> None:
    ran = await kernel.run("%agent ask -> count: int 'guess a number'")
    assert "count: int = 42" in ran.plain
    assert "(computed)" not in ran.plain
    assert await value(kernel, "count + 1") == "43"
    later = await kernel.run("%%agent -> more: int\nuse the number", [])
    assert "more: int = 43 (computed)" in later.plain, "the next draft has the variable"


async def test_a_misfit_is_one_line_and_leaves_the_variable_alone(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> kept: int\nsay it in words")
    assert ran.status == "error"
    assert "The answer 'about forty' is not an int, so kept was not set." in ran.error
    assert "Traceback" not in ran.error
    assert await value(kernel, "kept") == "'as it was'"


async def test_a_failed_program_gives_no_value(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> five: int\nfail at it", [])
    assert "five: int = 5" in ran.plain
    assert "(computed)" not in ran.plain
    assert await value(kernel, "kept") == "'as it was'"


async def test_classes_of_the_user_are_made_from_the_answer(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> city: City\nname a city")
    assert "city: City = City(name='Bergen', size=289330)" in ran.plain
    assert await value(kernel, "city.size") == "289330"


async def test_without_a_type_the_text_of_the_answer_is_set(kernel: Notebook) -> None:
    assert (await kernel.run("%%agent -> answer\njust answer")).text == "It is Gentoo."
    assert await value(kernel, "answer") == "'It is Gentoo.'"


@pytest.mark.parametrize(("options", "prompt"), [("--in live ", "filter the rows live"), ("", "filter the rows here")])
async def test_a_table_is_the_one_that_the_program_made(kernel: Notebook, options: str, prompt: str) -> None:
    await kernel.run("table = None; globals().pop('heavy', None)")
    ran = await kernel.run(f"%%agent {options}-> table: DataFrame\n{prompt}", [])
    assert ran.status == "ok", ran.error
    assert ran.asked == []
    assert "table: DataFrame = DataFrame of shape (2, 2) (computed)" in ran.plain
    assert await value(kernel, "table.equals(df[df.mass > 2])") == "True"
    assert await value(kernel, "'heavy' in globals()") == str(bool(options)), "a draft brings back this variable alone"


async def test_without_a_table_the_cell_says_so(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> kept: DataFrame\nno table at all")
    assert "No program of this turn ended with a DataFrame, so kept was not set." in ran.error
    assert await value(kernel, "kept") == "'as it was'"


async def test_a_value_that_no_copy_can_hold_is_made_for_real_after_a_question(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> mine: City\nmake one of mine", ["y"])
    assert ran.asked == ["Set mine in your kernel? The same code then runs there. [y]es / [n]o: "]
    assert "mine: City = City(name='Oslo', size=1) (computed)" in ran.plain
    assert await value(kernel, "mine") == "City(name='Oslo', size=1)"


async def test_whoever_refuses_gets_the_answer_instead(kernel: Notebook) -> None:
    ran = await kernel.run("%%agent -> mapping: dict\nonly in the draft", ["n"])
    assert len(ran.asked) == 1
    assert "mapping: dict = {'a': 1}" in ran.plain


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-> n: how", "how is not a type"),
        ("-> n: print()", "is not a type"),
        ("-> class: int", "'class' is not the name of a variable"),
        ("-> In: int", "In cannot be set"),
        ("--background -> n: int", "ends before its answer"),
        ("-f json -> n: int", "determines the format"),
        ("--in sandbox -> t: DataFrame", "comes from a program that runs in this kernel"),
    ],
)
async def test_a_mistake_is_named_before_any_turn_starts(kernel: Notebook, line: str, words: str) -> None:
    ran = await kernel.run(f"%%agent {line}\nnever asked")
    assert words in ran.error
    assert "Traceback" not in ran.error
    assert not ran.of("application/vnd.agent-kernel.turn+json")


async def test_under_run_all_a_typed_cell_is_asked_again(kernel: Notebook) -> None:
    cells = {"one": "%%agent -> first: int\nthe first of two", "two": "first + 1"}
    for _ in range(2):
        ran = await kernel.run_all(cells)
        assert ran["two"].plain == "2"
        assert "Stored answer" not in ran["one"].plain


@pytest.mark.parametrize("command", ["fix", "explain", "improve"])
async def test_a_command_about_a_cell_sets_no_variable(kernel: Notebook, command: str) -> None:
    ran = await kernel.run(f"%agent {command} -> n: int")
    assert f"%agent {command} is about a cell and sets no variable" in ran.error
