"""Tests what one answer of the user runs in the kernel: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

import re
import time

import pytest

from agent_kernel.notebook.draft import jail
from agent_kernel.notebook.draft.apply_draft import marked_names
from agent_kernel.notebook.kernel.python_syntax import loop_names
from tests.notebook.draft.test_draft import FOR_REAL, KEEP, told, value
from tests.notebook.notebook import Notebook
from tests.scripted import python_when

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

TRAITS = {"python_in": ""}
INSERT = """import sqlite3
conn = sqlite3.connect('sales.db')
conn.execute("INSERT INTO sales VALUES (4)")
conn.commit()
print(conn.execute('SELECT count(*) FROM sales').fetchone())"""
TABLE = "conn = __import__('sqlite3').connect('sales.db'); conn.execute('CREATE TABLE sales (n)'); conn.commit()"
COUNT = "print(__import__('sqlite3').connect('sales.db').execute('SELECT count(*) FROM sales').fetchone()[0])"
APPEND = "line = 'one'\nwith open('log.txt', 'a') as log:\n    log.write(line)"

SCRIPT = [
    *python_when("insert a row", INSERT),
    *python_when("append to the log", APPEND),
    *python_when(
        "append when told twice", APPEND.replace("log.txt", "twice.txt"), APPEND.replace("log.txt", "twice.txt")
    ),
    *python_when(
        "build before it is written", "parts = ['a']", "parts.append('b')", "open('parts.txt', 'a').write(str(parts))"
    ),
    *python_when("that fails at its end", "broken = [1]\nbroken[5]"),
    *python_when("fails first and works then", "broken = [1]\nbroken[5]", "mended = [1]\nmended[0]"),
    *python_when("the penguins of penguins.csv", "penguins = [1, 2]\nmean = 1.5\nprint(mean)"),
    *python_when("print each one", "for month in ['a', 'b']:\n    print(month)"),
    *python_when("draw with matplotlib", "fig, ax = 1, 2"),
    *python_when("sleep and append", "import time\ntime.sleep(0.4)\nopen('slow.txt', 'a').write('x')"),
    *python_when("sleep live", "import time\ntime.sleep(0.4)"),
    *python_when("as train and test", "train, test = [1], [2]"),
    *python_when("raise the rain", "rain = rain + 1"),
    {"text": "ok", "loop": True},
]


async def test_a_refused_insert_runs_once_after_one_yes(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run(TABLE + "\ndel conn")
    ran = await fresh_notebook.run("%%agent\ninsert a row with conn = connect", ["y", "y"])
    assert ran.asked == [FOR_REAL], "code that ran for real is not offered a second time"
    assert ran.cards[0].count("INSERT INTO") == 1
    assert (await told(fresh_notebook))[-1] == "(1,)"
    assert (await fresh_notebook.run(COUNT)).printed.strip() == "1"
    assert (await fresh_notebook.run("%agent keep")).status == "error", "nothing is left to be kept"
    assert (await fresh_notebook.run(COUNT)).printed.strip() == "1"


async def test_a_refused_append_writes_one_line_for_each_yes(fresh_notebook: Notebook) -> None:
    ran = await fresh_notebook.run("%%agent\nappend to the log as line", ["y", "y"])
    assert ran.asked == [FOR_REAL]
    assert (await fresh_notebook.run("print(open('log.txt').read())")).printed.strip() == "one"
    ran = await fresh_notebook.run("%%agent\nappend when told twice as line", ["n", "y", "y"])
    assert ran.asked == [FOR_REAL, FOR_REAL]
    assert ran.cards[1].count("with open(") == 1
    assert (await fresh_notebook.run("print(open('twice.txt').read())")).printed.strip() == "one"


@pytest.mark.parametrize("prompt", ["%%agent\nsleep and append", "%%agent --in live --ask\nsleep live"])
async def test_the_time_of_a_turn_has_the_tools_and_not_the_person(fresh_notebook: Notebook, prompt: str) -> None:
    """One number for the cell, the panel and the calls: the first asks in the kernel, the second on the server."""
    began = time.monotonic()
    ran = await fresh_notebook.run(prompt, ["y"], thinks_s=2.5)
    without_person = time.monotonic() - began - 2.5
    assert len(ran.asked) == 1
    took = ran.turn["usage"]["turn_s"]
    assert 0.4 < took < without_person
    assert f"{took:.1f} s in all" in ran.plain or f"{took:.2f} s in all" in ran.plain
    async with fresh_notebook.server.client() as http:
        stored = (await http.get(f"agent/v1/turns/{ran.turn['turn']}")).json()
    assert stored["usage"]["turn_s"] == took, "what the panel shows"
    seconds = float(re.search(r"done(?:: your kernel has it now)?, ([0-9.]+) s", ran.cards[0])[1])  # type: ignore[index]
    assert 0.35 < seconds < without_person


async def test_what_a_refused_call_needs_runs_with_it_and_once(fresh_notebook: Notebook) -> None:
    ran = await fresh_notebook.run("%%agent\nbuild before it is written as parts", ["y", "y"])
    assert ran.asked == [FOR_REAL]
    assert await value(fresh_notebook, "parts") == "['a', 'b']"
    assert (await fresh_notebook.run("print(open('parts.txt').read())")).printed.strip() == "['a', 'b']"


async def test_code_that_failed_is_never_offered(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\ncompute broken = something that fails at its end", ["y"])
    assert ran.asked == []
    assert "In a draft only" not in ran.plain
    assert await value(notebook, "broken") == "not there"
    ran = await notebook.run("%%agent\nbroken and `mended`: one fails first and works then", ["y"])
    assert ran.asked == [KEEP.format("mended")]
    assert "broken" not in ran.cards[-1]
    assert (await notebook.run("%agent keep broken")).error.startswith(
        "Agent: no draft has made or changed a variable broken"
    )


async def test_only_a_name_that_the_prompt_marks_is_asked_about(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nthe mean of the penguins of penguins.csv", [])
    assert ran.asked == []
    assert "In a draft only: penguins, mean." in ran.plain
    ran = await notebook.run("%%agent\nprint each one, called month", [])
    assert (ran.asked, "In a draft only" in ran.plain) == ([], False)
    ran = await notebook.run("%%agent\ndraw with matplotlib: fig, ax = subplots", [])
    assert (ran.asked, "In a draft only" in ran.plain) == ([], False)
    ran = await notebook.run("%%agent\nsplit it as train and test", ["y"])
    assert ran.asked == [KEEP.format("train and test")]


async def test_a_variable_in_braces_is_asked_about_when_the_draft_changed_it(notebook: Notebook) -> None:
    await notebook.run("rain = 1")
    ran = await notebook.run("%%agent\nraise the {rain}", ["y"])
    assert ran.asked == [KEEP.format("rain")]
    assert await value(notebook, "rain") == "2"


@pytest.mark.parametrize(
    ("prompt", "names"),
    [
        ("put the mean into {mean}", {"mean"}),
        ("compute `mean` of df", {"mean"}),
        ("save the monthly means as monthly", {"monthly"}),
        ("Save them As monthly.", {"monthly"}),
        ("a table called monthly, please", {"monthly"}),
        ('a table named "monthly"', {"monthly"}),
        ("call it monthly", {"monthly"}),
        ("Make a DataFrame passed with the rows of exam where score is at least 50.", {"passed"}),
        ("make a list temps_c of them", {"temps_c"}),
        ("sort the list numbers", {"numbers"}),
        ("list all files in a table of three columns", set()),
        ("read rain.csv into df and plot it", {"df"}),
        ("read rain.csv as a new variable df", {"df"}),
        ("split it into train, test and rest", {"train", "test", "rest"}),
        ("save it as monthly and plot rain", {"monthly"}),
        ("total = the sum of rain", {"total"}),
        ("low, high = the bounds", {"low", "high"}),
        ("save the sum as a", {"a"}),
        ("sum as a and mean as b", {"a", "b"}),
        ("draw it as a bar chart", set()),
        ("what is the mean of penguins.csv?", set()),
        ("save it as penguins.csv", set()),
        ("save it into data/penguins.csv", set()),
        ("where x == 3 or y <= 4", set()),
        ("columns such as month", set()),
        ("plot rain by month", set()),
        ("run it with --bins=3 and ax.x = 4", set()),
    ],
)
def test_marked_names(prompt: str, names: set[str]) -> None:
    assert marked_names(prompt) == names


def test_loop_names() -> None:
    assert loop_names("for i, (a, b) in pairs:\n    total = i\nfor total in x: pass") == {"i", "a", "b"}
    assert loop_names("for") == set()
