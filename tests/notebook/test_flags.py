"""Tests answer formats, branches from a turn number, one-line turns, and the cell that failed last."""

from __future__ import annotations

from typing import Any

from tests.notebook.notebook import Notebook

CODE = "Here it is:\n```python\nx = 1 + 1\nx\n```\nand more\n```\ny = x\n```\n"


def fix_script(when: str, *codes: str) -> list[dict[str, Any]]:
    calls = [{"when": when, "calls": [{"name": "python", "arguments": {"code": code}}]} for code in codes]
    return [*calls, {"when": when, "text": "Done."}]


SCRIPT: list[dict[str, Any]] = [
    {"when": "write a cell", "text": CODE},
    {"when": "only words", "text": "There is nothing to write."},
    {"when": "as plain", "text": "**not bold** <b>"},
    {"when": "as json", "text": '{"a": [1, 2]}'},
    {"when": "from here", "text": "Here."},
    {"when": "one line", "text": "One answer."},
    {"when": "and another", "text": "Another answer."},
    *fix_script("and keep the name", "print(1 / 0)", "wrong = 1\nmade = [wrong / 1 for one in [1]]"),
    {"when": "without a draft", "text": "```python\nprint(1 / 1)\n```"},
    {"when": "again the same", "text": "```python\nprint( 1 / 0 )\n```"},
    *fix_script("in vain", "print(1 / 0)", "print([][1])"),
    *fix_script("stubbornly", "half = rain.mm.mean() + 2"),
    {"calls": [{"name": "python", "arguments": {"code": "by_itself = 5"}}], "when": "do it"},
    {"when": "do it", "text": "It ran."},
    {"text": "Anything.", "loop": True},
]


async def test_code_is_proposed_as_a_cell_below_and_does_not_run(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent -f code\nwrite a cell", [])
    assert [(one["source"], one["text"], one["replace"]) for one in ran.payload] == [
        ("set_next_input", "x = 1 + 1\nx\n\ny = x", False)
    ]
    assert "Here it is" in ran.text
    assert "NameError" in (await notebook.run("x")).error
    hidden = next(message for message in await notebook.messages() if message.get("hidden"))
    assert "One fenced block of Python" in hidden["content"]


async def test_an_answer_without_code_proposes_nothing_and_says_so(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent -f code\nonly words", [])
    assert ran.payload == []
    assert "There is no code in this answer" in ran.plain
    unattended = await notebook.run("%%agent -f code\nwrite a cell")
    assert unattended.payload == [], "nobody edits cells here"


async def test_text_is_shown_as_it_is_and_json_is_asked_for_as_json(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent -f text\nas plain")
    assert ran.of("text/markdown") == []
    assert "**not bold** &lt;b&gt;" in ran.of("text/html")[0]
    ran = await notebook.run("%%agent --format=json\nas json")
    assert ran.text == '```json\n{"a": [1, 2]}\n```'
    refused = await notebook.run("%%agent -f yaml\nas json")
    assert refused.error == "Agent: -f must be md or code or json or text, not 'yaml'."


async def test_a_branch_begins_behind_a_turn_or_goes_on_where_it_was(notebook: Notebook) -> None:
    for number in range(3):
        await notebook.run(f"%%agent\nturn {number}", cell=f"c{number}")
    ran = await notebook.run("%%agent --branch 1\nfrom here", cell="c3")
    assert ran.turn["branch"] == "" or ran.turn["version"] == 1
    said = [message["content"] for message in await notebook.messages() if message["role"] == "user"]
    assert said == ["turn 0", "from here"]
    await notebook.run("%%agent --branch main\ngo on", cell="c4")
    said = [message["content"] for message in await notebook.messages() if message["role"] == "user"]
    assert said == ["turn 0", "turn 1", "turn 2", "go on"]
    told = await notebook.run("%agent branch 2")
    assert "starts with 2 turns of main" in told.plain
    assert "there is no turn 9; this branch has 2 turns" in (await notebook.run("%agent branch 9")).error
    assert "the name of a branch (branch-2" in (await notebook.run("%%agent --branch nowhere\nx")).error


async def test_a_turn_that_can_not_be_changes_no_branch_and_begins_no_session(notebook: Notebook) -> None:
    for number in range(2):
        await notebook.run(f"%%agent\nturn {number}", cell=f"c{number}")
    before = await where(notebook)
    for options in ("--branch 1", "--new", "--new --background --in live", "--branch 1 --background --auto"):
        assert (await notebook.run(f"%%agent {options} -v nowhere\nx")).status == "error"
        assert await where(notebook) == before, options
    for options in (f"-s {before[0]} --branch 1", "--new --branch 1"):
        assert "does not combine with -s or --new" in (await notebook.run(f"%%agent {options}\nx")).error
        assert await where(notebook) == before, options
    assert (await notebook.run("%%agent --new\nelsewhere")).status == "ok"
    assert (await where(notebook))[0] != before[0]


async def where(notebook: Notebook) -> tuple[str, str, int]:
    """Return (session, branch, number of sessions)."""
    async with notebook.server.client() as client:
        session = (await client.get("agent/v1/binding", params={"kernel": notebook.kernel})).json()["session"]
        known = (await client.get("agent/v1/sessions")).json()["sessions"]
    return session["id"], session["branch"], len(known)


async def test_a_question_for_the_options_starts_nothing(notebook: Notebook) -> None:
    for command in ("ask", "fix", "explain", "improve"):
        ran = await notebook.run(f"%agent {command} --help")
        assert ran.plain.startswith(f"%agent {command} [options]"), ran.all
        assert "--temperature T" in ran.plain
        assert ran.of("application/vnd.agent-kernel.turn+json") == []


async def test_a_turn_of_one_line_has_the_options_of_a_cell_and_a_place_of_its_own(notebook: Notebook) -> None:
    source = '%agent ask --rounds 0 "one line"\n%agent ask and another'
    ran = await notebook.run(source, cell="lines")
    assert ran.text == "One answer.\nAnother answer."
    cells = [record["cell"] for record in ran.of("application/vnd.agent-kernel.turn+json")]
    assert cells == ["lines", "lines#2"]
    assert "the question is missing" in (await notebook.run("%agent ask")).error
    assert "no option --sed" in (await notebook.run("%agent ask --sed 1 x")).error


async def test_the_last_answer_and_an_earlier_one_are_shown_again_without_a_model(notebook: Notebook) -> None:
    await notebook.run('%agent ask "one more"')
    await notebook.run('%agent ask "and the last"')
    first = await notebook.run("%agent show 1")
    assert first.plain.startswith("Stored answer of 20")
    assert (await notebook.run("%agent show")).turn["turn"] != first.turn["turn"]
    assert (await notebook.run(f"%agent show {first.turn['turn']}")).turn["turn"] == first.turn["turn"]
    assert (
        "there is no turn 7; the turns of this conversation have the numbers 1 to 2."
        in (await notebook.run("%agent show 7")).error
    )


async def test_a_recorded_conversation_is_replayed_in_the_cell(notebook: Notebook) -> None:
    await notebook.run('%agent ask "to be recorded"')
    assert (await notebook.run("%agent export told.agent.json --yes")).status == "ok"
    ran = await notebook.run("%agent replay told.agent.json")
    assert "to be recorded" in ran.printed, ran.all
    assert ran.status == "ok", ran.error
    assert (
        "nowhere.agent.json does not exist." in (await notebook.run("%agent replay nowhere.agent.json --verify")).error
    )
    assert (await notebook.run("%agent replay 1")).plain.startswith("Stored answer of 20")


async def test_fix_proposes_the_corrected_cell_that_ran_in_a_draft(fresh_notebook: Notebook) -> None:
    assert "no cell has failed" in (await fresh_notebook.run("%agent fix")).error
    function = "def half(x):\n    inner = x / 2\n    return inner\n"
    await fresh_notebook.run("half = abs")
    await fresh_notebook.run(f"{function}wrong = 1\nmade = [wrong / 0 for one in [1]]", cell="broken")
    ran = await fresh_notebook.run("%agent fix and keep the name", [])
    assert ran.status == "ok", ran.error
    assert [one["text"] for one in ran.payload] == ["wrong = 1\nmade = [wrong / 1 for one in [1]]"]
    assert " wrong = 1\n-made = [wrong / 0 for one in [1]]\n+made = [wrong / 1 for one in [1]]" in ran.plain
    assert "was not tried" not in ran.plain
    assert ran.asked == [], "what the draft made is not kept: the person runs the cell"
    hidden, asked, *_ = await fresh_notebook.messages()
    assert asked["content"].startswith("Correct the cell In[3], which failed with ZeroDivisionError: division by zero.")
    assert "Give the whole cell as it should be. It makes made." in asked["content"]
    assert asked["content"].endswith("and keep the name")
    assert "wrong = 1\nmade = [wrong / 0 for" in hidden["content"]
    assert "Traceback" in hidden["content"]


async def test_a_fix_of_which_no_program_ran_is_not_proposed(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run("print(1 / 0)", cell="broken")
    ran = await fresh_notebook.run("%agent fix in vain", [])
    assert ran.payload == []
    assert "No corrected cell ran without an error, so none is proposed." in ran.plain


async def test_where_a_person_wants_no_draft_the_fix_is_proposed_as_it_was_written(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run("print(1 / 0)", cell="broken")
    ran = await fresh_notebook.run("%agent fix --in sandbox without a draft", [])
    assert [one["text"] for one in ran.payload] == ["print(1 / 1)"]
    assert "The proposed cell was not tried in a draft." in ran.plain
    ran = await fresh_notebook.run("%agent fix --in sandbox again the same", [])
    assert ran.payload == [], "the same code under another layout"
    assert "The model wrote the same code that failed" in ran.plain


async def test_fix_has_the_facts_of_the_failing_line(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run(
        "import pandas as pd\nrain = pd.DataFrame({'mm': [1.5, 2.0]})\nother = pd.DataFrame({'unrelated': [1]})"
    )
    await fresh_notebook.run("print(len(other))\nhalf = (\n    rain.mm.mean() +\n    'x')", cell="broken")
    await fresh_notebook.run("%agent fix stubbornly", [])
    hidden, *_ = await fresh_notebook.messages()
    assert "rain: DataFrame, 2 rows" in hidden["content"]
    assert "mm float64" in hidden["content"]
    assert "unrelated" not in hidden["content"], "only what stands in the failing statement"
    await fresh_notebook.run("print(rian.mm)", cell="misspelt")
    await fresh_notebook.run("%agent fix", [])
    hidden = [message["content"] for message in await fresh_notebook.messages() if message.get("hidden")][-1]
    assert "rain: DataFrame, 2 rows" in hidden, "called alike"


async def test_auto_runs_code_in_the_kernel_without_a_question(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --auto\ndo it", [])
    assert (ran.asked, ran.text) == ([], "It ran.")
    assert (await notebook.run("by_itself")).plain == "5"
