"""Tests which results of a call in a draft the model reads: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

import pytest

from agent_kernel.notebook.draft import jail
from tests.notebook.draft.test_draft import told
from tests.notebook.notebook import Notebook
from tests.scripted import python_when

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

TRAITS = {"python_in": ""}
DF = "import pandas as pd\ndf = pd.DataFrame({'month': ['a', 'b'], 'rain': [1.0, None]})"
LONG = "The old way of doing this is deprecated and will be removed in a future version of this library. " * 5
LIBRARY = f"""import warnings

def old_way():
    warnings.warn({LONG!r} + chr(10) * 2 + 'See https://library.example/migration', FutureWarning, stacklevel=2)
    return 1
"""

SCRIPT = [
    *python_when("change it and fail", "df['double'] = df.rain * 2\nprint('so far')\ndf['missing']"),
    *python_when("draw it and fail", "ax = df.rain.plot()\nraise ValueError('no such month')"),
    *python_when("write it down", "open('result.txt', 'w')"),
    *python_when("assign in a chain as before", "df['rain'][0] = 5"),
    *python_when("assign in a chain", "df['rain'][0] = 5"),
    *python_when("fill in a chain", "df['rain'].fillna(0, inplace=True)"),
    *python_when("use the old way", "import library\nfor _ in range(3):\n    print(library.old_way())"),
    *python_when("in the box", "import pandas as pd\nbox = pd.DataFrame({'rain': [1]})\nbox['rain'][0] = 5"),
    {"text": "ok", "loop": True},
]


async def test_the_last_line_of_a_failed_call_is_its_error(notebook: Notebook) -> None:
    await notebook.run("import matplotlib\n%matplotlib inline\n" + DF)
    await notebook.run("%%agent\nchange it and fail", [])
    text = (await told(notebook))[-1]
    assert "so far" in text
    assert text.splitlines()[-1] == "KeyError: 'missing'"
    assert "Draft" not in text
    await notebook.run("%%agent\ndraw it and fail", [])
    text = (await told(notebook))[-1]
    assert text.splitlines()[-1] == "ValueError: no such month"
    await notebook.run("%%agent\nwrite it down", [])
    text = (await told(notebook))[-1]
    assert text.splitlines()[-1].startswith("PermissionError:")
    assert "has to run in the person's kernel" in text


@pytest.mark.parametrize("prompt", ["assign in a chain", "fill in a chain"])
async def test_an_assignment_that_changes_nothing_is_an_error(notebook: Notebook, prompt: str) -> None:
    await notebook.run(DF)
    ran = await notebook.run(f"%%agent\n{prompt}", [])
    assert "failed" in ran.cards[0]
    last = (await told(notebook))[-1].splitlines()[-1]
    assert last.startswith("ChainedAssignmentError: A value is being set on a copy")
    assert "using 'df" in last or "Try using '.loc[row_indexer, col_indexer] = value'" in last
    assert "http" not in last


async def test_an_assignment_that_changes_nothing_is_an_error_live_and_in_the_sandbox(notebook: Notebook) -> None:
    await notebook.run("%%agent --in sandbox\nin the box", [])
    assert (await told(notebook))[-1].splitlines()[-1].count("ChainedAssignmentError: A value is being set") == 1
    await notebook.run(DF + "\nfilters = list(__import__('warnings').filters)")
    await notebook.run("%%agent --in live\nassign in a chain as before", ["y"])
    assert "ChainedAssignmentError: " in (await told(notebook))[-1]
    same = "__import__('warnings').filters == filters, __import__('warnings').formatwarning.__module__"
    assert (await notebook.run(same)).plain == "(True, 'warnings')"


async def test_warnings_of_libraries_are_one_short_line(notebook: Notebook) -> None:
    ran = await notebook.run(f"open('library.py', 'w').write({LIBRARY!r})\nimport library")
    assert ran.status == "ok", ran.error
    await notebook.run("%%agent\nuse the old way", [])
    text = (await told(notebook))[-1]
    assert "FutureWarning" in text, text
    warned = [line for line in text.splitlines() if "FutureWarning" in line]
    assert len(warned) == 1
    assert warned[0].startswith("line 3: FutureWarning: The old way of doing this is deprecated")
    assert len(warned[0]) < 350
    assert "http" not in text
    assert "library.py" not in text
