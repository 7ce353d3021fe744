"""Tests that the agent reads the notebook and runs its cells: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

import asyncio

import nbformat.v4 as nb

from tests.notebook.notebook import Notebook
from tests.scripted import call_when

TRAITS = {"tools": "python,notebook"}
BROKEN = "data = {'a': 1}\ndata['gone']"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')"
RECURSIVE = "get_ipython().run_cell_magic('agent', '', 'ask yourself')"


SCRIPT = [
    call_when("what is in here", "notebook_cells"),
    {"when": "what is in here", "text": "Cells."},
    call_when("read some", "read_cells", cells="1, plot-1, In[2]"),
    {"when": "read some", "text": "Read."},
    call_when("which variables", "variables"),
    call_when("which variables", "variables", name="table"),
    {"when": "which variables", "text": "These."},
    call_when("what went wrong", "last_error"),
    {"when": "what went wrong", "text": "A key."},
    call_when("run the plot", "run_cell", cell="plot-1"),
    {"when": "run the plot", "text": "Ran."},
    call_when("run the wrong ones", "run_cell", cell="0"),
    call_when("run the wrong ones", "run_cell", cell="agent-1"),
    call_when("run the wrong ones", "run_cell", cell="nowhere"),
    {"when": "run the wrong ones", "text": "None ran."},
    call_when("call yourself", "python", code=RECURSIVE),
    {"when": "call yourself", "text": "That is refused."},
    call_when("how much tax", "tax", amount=100),
    {"when": "how much tax", "text": "25."},
    call_when("pay it", "pay", amount=100),
    {"when": "pay it", "text": "Paid."},
    call_when("let it fail", "fails"),
    {"when": "let it fail", "text": "It failed."},
    call_when("let it sleep", "sleeps"),
    call_when("forget it first", "python", code="del tax"),
    call_when("forget it first", "tax", amount=1),
    {"when": "forget it first", "text": "It is gone."},
    {"when": "say nothing", "text": "Nothing.", "loop": True},
]

REGISTER = """
from types import SimpleNamespace
from agent_kernel.notebook.turn.user_functions import MARK
def mark(function, description, parameters, kind="function"):
    spec = SimpleNamespace(name=function.__name__, description=description, parameters=parameters, kind=kind)
    setattr(function, MARK, SimpleNamespace(spec=spec, invoke=function))
schema = {"type": "object", "properties": {"amount": {"type": "number"}}}
paid = []
def tax(amount):
    print("computing")
    return f"{amount / 4:.0f} euros"
async def pay(amount):
    import asyncio
    await asyncio.sleep(0.01)
    paid.append(amount)
    return {"paid": amount}
def fails():
    raise LookupError("no such account")
def sleeps():
    import time
    time.sleep(60)
mark(tax, "The tax.", schema)
mark(pay, "Pays.", schema, "function.effects")
mark(fails, "Fails.", {"type": "object"})
mark(sleeps, "Sleeps.", {"type": "object"})
"""


async def save(notebook: Notebook, path: str = "shared.ipynb") -> None:
    """Save the notebook as a front end does."""
    cells = [
        nb.new_markdown_cell("# Weather\nOf a year", id="title-1"),
        nb.new_code_cell(
            BROKEN,
            id="broken-1",
            execution_count=2,
            outputs=[nb.new_output("error", ename="KeyError", evalue="gone", traceback=[])],
        ),
        nb.new_code_cell(PLOT, id="plot-1", outputs=[nb.new_output("display_data", {"image/png": "AAAA"})]),
        nb.new_code_cell("%%agent\nrun the wrong ones", id="agent-1"),
    ]
    async with notebook.server.client() as http:
        content = {"type": "notebook", "content": nb.new_notebook(cells=cells)}
        (await http.put(f"api/contents/{path}", json=content)).raise_for_status()


async def test_the_map_has_the_saved_cells_and_what_ran_in_the_kernel(fresh_notebook: Notebook) -> None:
    path = "test_the_map_has_the_saved_cells_and_what_ran_in_the_kernel.ipynb"
    await save(fresh_notebook, path)
    await fresh_notebook.run("x = 1\ny = 2", cell="abc")
    await fresh_notebook.run("1 / 0", cell="def")
    ran = await fresh_notebook.run("%%agent\nwhat is in here")
    assert ran.text == "Cells."
    [text] = await fresh_notebook.tool_results()
    assert text.startswith(f"{path} as last saved 2")
    assert "4 cells.\n0 title-1 markdown: # Weather  (2 lines)\n" in text
    assert "1 broken-1 code: data = {'a': 1}  (In[2], 2 lines, failed: KeyError)\n" in text
    assert "In[1] cell abc: x = 1\nIn[2] cell def: 1 / 0 -> ZeroDivisionError" in text
    assert "4 cells." in ran.cards[0], "a person sees what the model was told"


async def test_cells_are_read_by_number_id_and_execution_and_pictures_are_named(fresh_notebook: Notebook) -> None:
    await save(fresh_notebook, "test_cells_are_read_by_number_id_and_execution_and_pictures_.ipynb")
    await fresh_notebook.run("first = 1")
    await fresh_notebook.run("second = 2\nsecond")
    await fresh_notebook.run("%%agent\nread some")
    [text] = await fresh_notebook.tool_results()
    assert f"[1 broken-1 code In[2]]\n{BROKEN}\n--> KeyError: gone" in text
    assert f"{PLOT}\n--> [image/png, 3 bytes]" in text
    assert "In[2]:\nsecond = 2\nsecond\nOut[2]: int = 2" in text


async def test_variables_are_listed_and_one_is_looked_at_without_a_question(notebook: Notebook) -> None:
    await notebook.run("import pandas as pd\ntable = pd.DataFrame({'a': [1, None]})\nrate = 0.5")
    assert (await notebook.run("%%agent\nwhich variables", [])).asked == []
    listed, one = await notebook.tool_results()
    assert "rate: float = 0.5\ntable: DataFrame, 2 rows x 1 columns: a float64" in listed
    assert "missing values: a 1" in one
    assert "first rows:\na\n1.0\nnan" in one


async def test_the_last_error_is_that_of_the_persons_cell(notebook: Notebook) -> None:
    await notebook.run(BROKEN, cell="broken-1")
    await notebook.run("%%agent\nwhat went wrong")
    [text] = await notebook.tool_results()
    assert "(cell broken-1) failed. Its source:\ndata = {'a': 1}\ndata['gone']" in text
    assert text.endswith("KeyError: 'gone'")


async def test_a_cell_runs_after_its_code_was_shown_and_its_figure_is_shown(notebook: Notebook) -> None:
    await save(notebook)
    ran = await notebook.run("%%agent\nrun the plot", ["y"])
    assert len(ran.asked) == 1
    before = next(shown for shown in ran.history if "waiting for your answer" in shown)
    assert "plt.plot([1, 2])" in before, "a person is asked about the code, not about an id"
    assert len(ran.of("image/png")) == 1
    [[text, figure]] = await notebook.tool_results()
    assert (text["text"], figure["mime"]) == ("drawn\n[1 figure(s) shown]", "image/png")


async def test_what_is_no_code_of_the_notebook_is_not_run(notebook: Notebook) -> None:
    await save(notebook)
    assert (await notebook.run("%%agent\nrun the wrong ones", [])).asked == []
    first, second, third = await notebook.tool_results()
    assert "has no code to run" in first
    assert "you cannot run it" in second
    assert "There is no cell 'nowhere'" in third


async def test_a_turn_inside_a_turn_is_refused_and_does_not_wait_for_itself(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent --in live\ncall yourself")).text == "That is refused."
    assert "cannot be run from inside an agent cell" in (await notebook.tool_results())[0]


async def test_a_function_of_the_person_runs_in_their_kernel_and_one_with_effects_asks(notebook: Notebook) -> None:
    assert (await notebook.run(REGISTER)).status == "ok"
    ran = await notebook.run("%%agent\nhow much tax", [])
    assert (ran.asked, ran.text) == ([], "25.")
    assert await notebook.tool_results() == ["computing\n25 euros"]
    ran = await notebook.run("%%agent\npay it", ["n"])
    assert len(ran.asked) == 1
    assert (await notebook.run("paid")).plain == "[]"
    await notebook.run("%%agent\nlet it fail")
    assert (await notebook.tool_results())[-1].endswith("LookupError: no such account")


async def test_a_call_that_the_kernel_can_not_run_any_more_is_declined_at_once(notebook: Notebook) -> None:
    await notebook.run(REGISTER)
    assert (await notebook.run("%%agent --in live\nforget it first")).text == "It is gone."
    assert "it did not run; magic:" in (await notebook.tool_results())[-1]
    assert "declined: this kernel has no tax" in (await notebook.tool_results())[-1]


async def test_an_interrupt_ends_a_function(notebook: Notebook) -> None:
    await notebook.run(REGISTER)
    running = asyncio.create_task(notebook.run("%%agent\nlet it sleep"))
    await notebook.until_shown("sleeps")
    await asyncio.sleep(0.3)
    await notebook.interrupt()
    ran = await running
    assert "stopped" in ran.error


async def test_what_the_model_can_call_is_listed_with_where_it_runs_and_whether_it_asks(notebook: Notebook) -> None:
    await save(notebook)
    await notebook.run(REGISTER)
    told = (await notebook.run("%agent tools")).plain
    rows = {row.split()[0]: " ".join(row.split()[1:]) for row in told.splitlines() if row.strip()}
    assert rows["notebook_cells"].endswith("on the server no (the defaults)")
    assert rows["variables"].endswith("in your kernel no (the defaults)")
    assert rows["run_cell"].endswith("in your kernel yes (the defaults)")
    assert rows["pay"] == "Pays in the notebook yes (the defaults) your function"
    assert rows["tax"].endswith("in the notebook no (the defaults) your function")
    assert "running" not in rows, "nothing that the agent started can outlive its cell here"
