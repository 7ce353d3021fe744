"""Tests the kernelspec "Agent prompts (Python)" in real kernels: of a Jupyter server, of nbconvert, and with none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from agent_kernel.notebook.draft import jail
from tests.notebook.alone import own_environment
from tests.notebook.notebook import Notebook, Ran
from tests.server import ROOT, AgentServer, Json

KERNELS = str(ROOT / "packaging")
"""With the folder ``kernels``, as the installed package has it in ``share/jupyter``."""
ASK = {"agent_kernel": {"ask": True}}
FILES = """
import os
os.makedirs('tables')
for name in ('tables/teas.csv', 'tables/.hidden.csv', 'tables/program.bin', 'tab.csv'):
    open(name, 'w').write('a')
"""
SCRIPT: list[Json] = [
    {"when": "count it", "calls": [{"name": "python", "arguments": {"code": "counted = len(rows)\nprint(counted)"}}]},
    {"when": "count it", "text": "There are 3."},
    {"when": "rows", "calls": [{"name": "python", "arguments": {"code": "rows"}}]},
    {"when": "rows", "text": "They ran as Python."},
    {"when": "run that", "calls": [{"name": "run_cell", "arguments": {"cell": "prompt"}}]},
    {"when": "run that", "text": "I may not."},
    {"when": "make the base", "calls": [{"name": "python", "arguments": {"code": "base = 20"}}]},
    {"when": "make the base", "text": "Made."},
    {"when": "make the top", "calls": [{"name": "python", "arguments": {"code": "print('top', base + 1)"}}]},
    {"when": "make the top", "text": "Made."},
    {
        "when": "look for the base",
        "calls": [{"name": "python", "arguments": {"code": "print('no base now' if 'base' not in vars() else 1)"}}],
    },
    {"when": "look for the base", "text": "Looked."},
    {"when": "slow", "text": "word " * 400, "deltas": 400, "delay": 0.05},
    {"text": "Anything.", "loop": True},
]


ENV = {"JUPYTER_PATH": KERNELS}


@pytest.fixture(scope="module")
def shared_kernel(server: AgentServer) -> str:
    return asyncio.run(server.start_kernel("shared.ipynb", name="agent-python"))


async def prompts(notebook: Notebook) -> list[str]:
    """Return the stored prompts of the conversation's turns, oldest first."""
    async with notebook.server.client() as client:
        path = (await client.get("agent/v1/binding", params={"kernel": notebook.kernel})).json()
        turns = (await client.get(f"agent/v1/sessions/{path['session']['id']}/turns")).json()["turns"]
    return [turn["prompt"] for turn in turns]


async def test_the_text_behind_the_sign_is_a_turn_with_its_lines_and_no_options(notebook: Notebook) -> None:
    ran = await notebook.run("> -m is no option here\n> and `x?` stays\n>>> as_it_is()")
    assert (ran.status, ran.error) == ("ok", "")
    assert await prompts(notebook) == ["-m is no option here\nand `x?` stays\n>>> as_it_is()"]


async def test_a_cell_that_was_switched_to_ask_is_a_turn_and_the_code_of_it_is_not(notebook: Notebook) -> None:
    await notebook.run("rows = [1, 2, 3]")
    ran = await notebook.run("rows", ["y"], cell="a", metadata=ASK)
    assert ran.text == "They ran as Python.", ran.all
    assert "[1, 2, 3]" in ran.plain
    assert (await notebook.run("rows", cell="b")).plain == "[1, 2, 3]"
    assert await prompts(notebook) == ["rows"]


async def test_everything_else_is_python_and_reaches_no_model(notebook: Notebook) -> None:
    await notebook.run("> hello")
    for code in ("pritn(1)", "x = = 1", "plot sales by month", "%nothing", "!true", "len?", ">>> 1 + 1", "1 > 2"):
        await notebook.run(code)
    assert await prompts(notebook) == ["hello"]
    assert (await notebook.run(">>> 1 + 1")).plain == "2"


async def test_a_sentence_that_python_refuses_gets_a_line_that_says_how_to_ask(notebook: Notebook) -> None:
    ran = await notebook.run("plot sales by month")
    assert "SyntaxError" in ran.error
    [offer] = [output for output in ran.outputs if output.get("metadata")]
    assert offer["metadata"] == {"agent_kernel": {"offer": "ask"}}
    assert "begin the cell with >" in offer["data"]["text/plain"]
    assert "begin the cell" not in (await notebook.run("x = = 1")).plain


async def test_run_all_shows_the_stored_answers_of_prompt_cells(notebook: Notebook) -> None:
    cells = {"one": "> a question of Run All", "two": "1 + 1"}
    first = await notebook.run_all(cells)
    assert "Stored answer" not in first["one"].all
    again = await notebook.run_all(cells)
    assert "Stored answer" in again["one"].all
    assert again["one"].text == first["one"].text == "Anything."


async def test_a_prompt_without_text_says_what_is_missing(notebook: Notebook) -> None:
    assert (await notebook.run(">")).error == "Agent: the prompt is missing. Write it after >."


async def test_code_of_a_turn_runs_live_and_completion_and_inspection_know_it(notebook: Notebook) -> None:
    await notebook.run("rows = [1, 2, 3]")
    assert (await notebook.run("> count it", ["y"])).text == "There are 3."
    assert await notebook.complete("> what is in {ro") == ["rows"]
    assert await notebook.complete("%%agent\nwhat is in {ro") == ["rows"]
    await notebook.run(FILES)
    assert await notebook.complete("> the dearest tea in @ta") == ["tab.csv", "tables/"]
    assert await notebook.complete("%%agent\nin @tables/") == ["tables/teas.csv"]
    assert "counted" in await notebook.complete("counte")
    assert "list" in await notebook.inspect("rows")


async def test_an_interrupt_stops_the_turn(notebook: Notebook, server: AgentServer) -> None:
    running = asyncio.create_task(notebook.run("> slow"))
    await notebook.until_shown("word")
    async with server.client() as client:
        (await client.post(f"api/kernels/{notebook.kernel}/interrupt")).raise_for_status()
    ran: Ran = await running
    assert ran.error == "Agent: stopped; the answer so far is kept."
    assert (await notebook.run("1 + 1")).plain == "2"


async def test_the_model_does_not_run_a_prompt_cell(server: AgentServer) -> None:
    cells = [
        {"cell_type": "code", "id": "prompt", "source": "Plot it", "metadata": ASK, "outputs": []},
        {"cell_type": "code", "id": "quoted", "source": "> Plot it", "metadata": {}, "outputs": []},
    ]
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    async with server.client() as client:
        await client.put("api/contents/guarded.ipynb", json={"type": "notebook", "content": content})
    kernel = await server.start_kernel("guarded.ipynb", name="agent-python")
    async with Notebook(server, kernel) as notebook:
        ran = await notebook.run("%%agent --auto\nrun that")
        assert "Cell 0 is a prompt for you" in ran.all + "".join(ran.cards)
        assert ran.text == "I may not."
        await notebook.shut_down()


async def test_a_kernel_of_another_spec_runs_no_prompts(server: AgentServer) -> None:
    kernel = await server.start_kernel("plain.ipynb")
    async with Notebook(server, kernel) as notebook:
        assert "SyntaxError" in (await notebook.run("> hello")).error
        ran = await notebook.run("plot sales by month", metadata=ASK)
        assert "SyntaxError" in ran.error
        assert "begin the cell" not in ran.plain
        await notebook.shut_down()


@pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())
async def test_a_draft_lasts_over_prompt_cells_until_code_of_the_person_runs(notebook: Notebook) -> None:
    await notebook.run("%agent in draft")
    await notebook.run("> make the base", [])
    ran = await notebook.run("make the top", [], cell="a", metadata=ASK)
    assert "top 21" in ran.cards[0], ran.all
    await notebook.run("1 + 1")
    assert "no base now" in (await notebook.run("> look for the base", [])).cards[0]
    await notebook.run("%agent in live")


async def test_explain_passes_over_prompt_cells(notebook: Notebook) -> None:
    number = (await notebook.run("len(In) - 1")).plain
    await notebook.run("> hello")
    await notebook.run("hello there", cell="a", metadata=ASK)
    await notebook.run("%agent explain")
    assert f"In[{number}]" in (await prompts(notebook))[-1]


def test_nbconvert_executes_a_conversation_in_a_kernel_that_starts_its_own_server(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in ("rows = [1, 2, 3]", "> What is in {rows}?", "rows")]
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "agent-python", "display_name": "Agent prompts", "language": "python"}
    nbformat.write(book, tmp_path / "talk.ipynb")
    command = (sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "talk.ipynb")
    environment = {
        **own_environment(tmp_path, [{"text": "Answered."}]),
        "JUPYTER_PATH": KERNELS,
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    executed = nbformat.read(tmp_path / "talk.ipynb", 4).cells
    assert "Answered" in str(executed[1].outputs)
    assert executed[2].outputs[0].data["text/plain"] == "[1, 2, 3]"
