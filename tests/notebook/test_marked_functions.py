"""Tests ``@agent_kernel.tool`` in a cell: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

from tests.notebook.notebook import Notebook
from tests.scripted import call_when

TRAITS = {"tools": "functions"}


SCRIPT = [
    call_when("what does it cost", "price", item="tea", unit="cent", n=3),
    {"when": "what does it cost", "text": "750 cents."},
    call_when("what does nonsense cost", "price", item="tea", unit="pound"),
    {"when": "what does nonsense cost", "text": "I do not know."},
    call_when("buy it", "buy", item="tea"),
    {"when": "buy it", "text": "Bought."},
    {"when": "say nothing", "text": "Nothing.", "loop": True},
]
CELL = """
import enum
import agent_kernel

class Unit(enum.Enum):
    EURO = "euro"
    CENT = "cent"

stock = {"tea": 2.5}
bought = []

@agent_kernel.tool
def price(item: str, unit: Unit = Unit.EURO, n: int = 1) -> str:
    '''What something costs.

    Args:
        item: Its name.
    '''
    total = stock[item] * n * (100 if unit is Unit.CENT else 1)
    return f"{total:g} {unit.value}s"

@agent_kernel.tool(effects=True)
async def buy(item: str) -> dict:
    '''Buys something.'''
    bought.append(item)
    return {"bought": item}
"""


async def test_a_typed_function_of_a_cell_is_a_tool_and_sees_the_variables(notebook: Notebook) -> None:
    assert (await notebook.run(CELL)).status == "ok"
    ran = await notebook.run("%%agent\nwhat does it cost", [])
    assert (ran.asked, ran.text) == ([], "750 cents.")
    assert await notebook.tool_results() == ["750 cents"]


async def test_arguments_that_do_not_fit_are_told_to_the_model(notebook: Notebook) -> None:
    await notebook.run(CELL)
    await notebook.run("%%agent\nwhat does nonsense cost", [])
    [text] = await notebook.tool_results()
    assert "do not fit" in text
    assert "pound" in text


async def test_one_with_effects_asks_and_runs_when_the_person_says_yes(notebook: Notebook) -> None:
    await notebook.run(CELL)
    ran = await notebook.run("%%agent\nbuy it", ["y"])
    assert len(ran.asked) == 1
    assert await notebook.tool_results() == ["{'bought': 'tea'}"]
    assert (await notebook.run("bought")).plain == "['tea']"


async def test_a_function_that_was_deleted_is_no_tool_any_more(notebook: Notebook) -> None:
    await notebook.run(CELL)
    listed = await notebook.run("%agent tools")
    assert "price" in listed.plain
    await notebook.run("del price")
    assert "price" not in (await notebook.run("%agent tools")).plain
