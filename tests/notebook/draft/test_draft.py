"""Tests drafts as users use them: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

import asyncio

import pytest

from agent_kernel.notebook.draft import jail
from tests.notebook.notebook import Notebook
from tests.scripted import python_when

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

TRAITS = {"python_in": ""}
DF = "import pandas as pd\ndf = pd.DataFrame({'month': ['a', 'b', 'a'], 'rain': [1, 2, 3]})"
KEEP = "Keep {} in your kernel? The same code then runs there. [y]es / [n]o: "
FOR_REAL = "A draft may not do this. Run it in your kernel for real? [y]es / [n]o: "
LOOK = """import os
print()
for place in ('data', 'runtime'):
    try:
        print(place, os.listdir('../' + place))
    except PermissionError:
        print(place, 'not seen')
print()"""
XSS = """from IPython.display import HTML, Javascript, display
display(HTML('<table><tr onclick="x()"><td>safe</td></tr></table><img src=https://a.example/?secret><script>x()</script>'))
display(Javascript('alert(1)'))"""


SCRIPT = [
    *python_when("plot df by month", "df.groupby('month').rain.mean().plot()"),
    *python_when("save the monthly means", "monthly = df.groupby('month').rain.mean().to_frame()\nmonthly"),
    *python_when(
        "in two steps", "part = df.rain * 2", "whole = part.sum()\nprint('whole', whole)", "print('no need of it')"
    ),
    *python_when("and say no", "refused = 1"),
    *python_when("add a column", "df['double'] = df.rain * 2"),
    *python_when("think of a wet column", "df['wet'] = df.rain > 1"),
    *python_when("count the wet of df", "print(df.wet.sum())"),
    *python_when("lone thing", "single = 20"),
    *python_when("first thing", "base = 20"),
    *python_when("second thing, as top", "top = base + 1\nprint('top', top)"),
    *python_when("an old thing", "old = df.rain.sum()"),
    *python_when("write it down", "table = df.rain * 3", "table.to_csv('table.csv')\nprint('written')"),
    *python_when("write nothing", "open('nothing.txt', 'w')"),
    *python_when("half done twice", *["halved = 21\nhalved / 0"] * 2),
    *python_when(
        "rename the column",
        "df.rename(columns={'rain': 'mm'}, inplace=True)\ntown = 'Ulm'\ndf.rain.sum()",
        "print(list(df), 'town' in globals())",
        "df = df.rename(columns={'rain': 'mm'})\ntotal_mm = df.mm.sum()\nprint(total_mm)",
    ),
    *python_when("lose the process", "steady = 20", "import os\nsteady = 0\nos._exit(3)", "print('steady', steady)"),
    *python_when("break the page", XSS),
    *python_when(
        "with a shell line", "!echo from the shell\nlisted = !echo in a list\nprint(listed)\n%timeit -n1 -r1 0"
    ),
    *python_when("a long sleep", "import time\nprint('begun')\ntime.sleep(60)")[:1],
    {"when": "a long sleep", "text": "Slept " * 50, "deltas": 50, "delay": 0.2},
    *python_when("end the process", "import os\nos._exit(3)"),
    *python_when("nobody there", "alone = 6 * 7\nprint(alone)"),
    *python_when("with copies", "print(df.rain.sum(), word)"),
    *python_when("too large", "print('big' in globals())"),
    *python_when(
        "in the box", "boxed = df.rain.tolist()\nimport numpy as np\ngrid = np.arange(6).reshape(2, 3)\nodd = object()"
    ),
    *python_when("rebuilt in the sandbox", "kept = [1, 2]\nopen('a.txt', 'w').close()"),
    *python_when("so `denied_one` stays", "denied_one = 1"),
    *python_when("so it cannot write", "open('denied.txt', 'w')"),
    *python_when("look around the server", LOOK),
    *python_when("print the town", "print(town)"),
    *python_when("print the town", "print(town)"),
    *python_when("ask first", "asked_for = 1"),
    *python_when("compare programs", "print(7)", *["lost = 1\nprint(9)"] * 4, "print(8)", "1 / 0", "print(9.0)"),
    *python_when("compare close programs", "print('<b>7</b>')", *["print(9)"] * 5, *["print('<b>7</b>')"] * 2),
    *python_when("compare and make best", "best = 1", *["best = 3"] * 6, "other = 3"),
    *python_when("for the run all", "kept_one = 11"),
    {"text": "ok", "loop": True},
]


async def value(notebook: Notebook, name: str) -> str:
    return (await notebook.run(f"print(globals().get({name!r}, 'not there'))")).printed.strip()


async def told(notebook: Notebook) -> list[str]:
    """Return the results of its calls that the model read."""
    found = [message["content"] for message in await notebook.messages() if message["role"] == "tool"]
    return [text if isinstance(text, str) else text[0]["text"] for text in found]


async def test_plot_then_save_then_use_with_one_question_and_no_flag(notebook: Notebook) -> None:
    await notebook.run(DF)
    plotted = await notebook.run("%%agent\nplot df by month", [])
    assert plotted.asked == []
    assert plotted.turn["where"] == "draft"
    assert "python in a draft (sees your variables, changes nothing) · done" in plotted.cards[0]
    assert len(plotted.of("image/png")) == 1
    saved = await notebook.run("%%agent\nsave the monthly means as monthly", ["y"])
    assert saved.asked == [KEEP.format("monthly")]
    assert "done: your kernel has it now" in saved.cards[-1]
    assert "monthly = df.groupby" in saved.cards[-1]
    assert "a       2.0" in (await notebook.run("monthly.head()")).plain
    assert "Draft" not in (await told(notebook))[-1], "what was made is for the person: a small model repeats it"


async def test_calls_see_what_earlier_ones_made_and_all_that_is_needed_is_kept(notebook: Notebook) -> None:
    await notebook.run(DF)
    ran = await notebook.run("%%agent\ncompute `whole` in two steps", ["y"])
    assert "whole 12" in ran.cards[1]
    assert ran.asked == [KEEP.format("whole")]
    assert "part = df.rain * 2\n\nwhole = part.sum()" in ran.cards[-1]
    assert "no need of it" not in ran.cards[-1]
    assert await value(notebook, "whole") == "12"


async def test_after_a_no_the_kernel_is_as_it_was_and_it_can_be_kept_later(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nset refused = 1 and say no", ["n"])
    assert ran.asked == [KEEP.format("refused")]
    assert "%agent keep brings it into your kernel" in ran.plain
    assert (await notebook.run("%agent keep")).status == "ok"
    assert await value(notebook, "refused") == "1"


async def test_what_nobody_asked_for_by_name_is_told_in_a_line(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\na lone thing", [])
    assert ran.asked == []
    assert "In a draft only: single. %agent keep brings it into your kernel." in ran.plain


async def test_a_changed_variable_is_kept_when_the_person_named_it(notebook: Notebook) -> None:
    await notebook.run(DF)
    ran = await notebook.run("%%agent\nadd a column to df", ["y"])
    assert ran.asked == [KEEP.format("df")]
    assert (await told(notebook))[-1] == "(no output)"
    assert await value(notebook, "list(df)") == "not there"
    assert (await notebook.run("list(df)")).plain == "['month', 'rain', 'double']"


async def test_the_next_turn_goes_on_with_the_draft_until_the_person_runs_code(notebook: Notebook) -> None:
    await notebook.run("%%agent\nthe first thing again", [])
    ran = await notebook.run("%%agent\nthe second thing, as top", ["y"])
    assert "top 21" in ran.cards[0]
    assert "base = 20\n\ntop = base + 1" in ran.cards[-1]
    assert (await value(notebook, "base"), await value(notebook, "top")) == ("20", "21")


async def test_the_model_sees_what_the_draft_has_and_run_all_still_shows_the_stored_answers(
    fresh_notebook: Notebook,
) -> None:
    cells = {"load": DF, "make": "%%agent\nthink of a wet column", "use": "%%agent\ncount the wet of df"}
    await fresh_notebook.run_all(cells)
    made, used = [message["content"] for message in await fresh_notebook.messages() if message.get("hidden")]
    assert "df: DataFrame, 3 rows x 2 columns: month str, rain int64\n" in made
    assert used.startswith("Variables: df: DataFrame, 3 rows x 3 columns: month str, rain int64, wet bool\n")
    assert used.count("df: DataFrame") == 1
    assert (await told(fresh_notebook))[-1] == "2"
    again = await fresh_notebook.run_all(cells)
    assert [again[cell].plain.startswith("Stored") for cell in ("make", "use")] == [True, True]


async def test_what_a_draft_read_must_be_the_same_when_it_is_kept_later(notebook: Notebook) -> None:
    await notebook.run(DF)
    await notebook.run("%%agent\ncompute an old thing", [])
    await notebook.run("df = df.head(1)")
    ran = await notebook.run("%agent keep")
    assert ran.error == "Agent: df changed since the draft read it: ask again instead."
    assert await value(notebook, "old") == "not there"
    unknown = await notebook.run("%agent keep nonsense")
    assert unknown.error == "Agent: no draft has made or changed a variable nonsense, only: old."


async def test_code_that_writes_is_run_for_real_after_a_question_with_what_it_needs(notebook: Notebook) -> None:
    await notebook.run(DF)
    ran = await notebook.run("%%agent\nwrite it down", ["y"])
    assert ran.asked == [FOR_REAL]
    assert "python in your kernel · done" in ran.cards[1]
    assert "table = df.rain * 3\n\ntable.to_csv" in ran.cards[1]
    assert (await told(notebook))[-1] == "written"
    assert "0,3" in (await notebook.run("print(open('table.csv').read())")).printed


async def test_code_that_writes_and_nobody_allows_is_told_why_it_did_not(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent\nwrite nothing", ["n"])).asked == [FOR_REAL]
    text = (await told(notebook))[-1]
    assert "PermissionError" in text
    assert "This code has to run in the person's kernel" in text
    assert (await notebook.run("import os; os.path.exists('nothing.txt')")).plain == "False"


async def test_a_call_that_failed_is_not_offered_even_when_it_was_tried_again_as_it_was(notebook: Notebook) -> None:
    """It was kept once before: "yes" then ran code that fails in the kernel."""
    assert (await notebook.run("%%agent\nset halved = 21, half done twice", ["y"])).asked == []
    assert await value(notebook, "halved") == "not there"


async def test_a_call_after_one_that_failed_half_way_sees_what_was_before_it(notebook: Notebook) -> None:
    await notebook.run(DF)
    ran = await notebook.run("%%agent\nrename the column, and save the sum as total_mm", ["y"])
    failed, looked, computed = (await told(notebook))[-3:]
    assert failed.startswith("Nothing that this code did is kept: every variable is as it was before it.")
    assert failed.endswith("AttributeError: 'DataFrame' object has no attribute 'rain'")
    assert looked.startswith("['month', 'rain'] False")
    assert computed.startswith("6")
    assert ran.asked == [KEEP.format("total_mm")]
    assert "inplace" not in ran.cards[-1], "what failed is not run for real"
    assert await value(notebook, "total_mm") == "6"


async def test_of_several_programs_the_one_that_most_agree_with_runs_and_is_shown(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --effort thorough\ncompare programs", [])
    assert len(ran.cards) == 1
    assert "print(9)" in ran.cards[0]
    assert "5 of 8 programs that were tried have this result." in ran.plain
    assert not any("<details" in html for html in ran.of("text/html") if "have this result" in html)
    assert (await told(notebook))[-1] == "9"
    assert await value(notebook, "lost") == "not there"


async def test_the_result_of_the_second_group_of_a_close_vote_is_folded_as_plain_text(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --effort thorough\ncompare close programs", [])
    shown, card = ran.cards
    assert "print(9)" in card
    assert shown.startswith("<details style=")
    assert "5 of 8 programs that were tried have this result.</summary>" in shown
    assert "3 gave another result:\n&lt;b&gt;7&lt;/b&gt;</pre>" in shown
    assert "5 of 8 programs that were tried have this result. 3 gave another result: <b>7</b>" in ran.plain


async def test_programs_that_show_nothing_are_compared_by_what_they_make(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --effort thorough\nsave it as best: compare and make best", ["y"])
    assert ran.asked == [KEEP.format("best")]
    assert await value(notebook, "best") == "3"


async def test_a_call_that_ends_its_process_takes_nothing_of_earlier_calls_with_it(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent\nlose the process", [])).status == "ok"
    _, lost, after = (await told(notebook))[-3:]
    assert lost.startswith("The code was ended: it ended itself. Nothing that this code did is kept")
    assert after == "steady 20"


async def test_what_a_draft_shows_runs_nothing_and_fetches_nothing(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nbreak the page", [])
    shown = [html for html in ran.of("text/html") if "safe" in html]
    assert "<table><tr><td>safe</td></tr></table>" in shown
    assert ran.of("application/javascript") == []
    assert not any("https://a.example" in html and "<details" not in html for html in ran.of("text/html"))


async def test_ipythons_own_syntax_works_in_a_draft(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nwith a shell line", [])
    assert "from the shell" in ran.cards[0]
    assert "in a list&#x27;]" in ran.cards[0]
    assert "loop" in ran.cards[0]
    assert (await told(notebook))[-1].startswith("from the shell\n['in a list']")


async def test_an_interrupt_ends_the_draft_and_not_the_kernel(notebook: Notebook) -> None:
    await notebook.run("kept = 1")
    cell = asyncio.create_task(notebook.run("%%agent\na long sleep", []))
    await notebook.until_shown("begun")
    await notebook.interrupt()
    ran = await cell
    assert ran.error == "Agent: stopped; the answer so far is kept."
    assert "stopped" in ran.cards[0]
    assert await value(notebook, "kept") == "1"


async def test_a_draft_that_ends_itself_is_told_and_the_kernel_lives(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent\nend the process", [])).status == "ok"
    assert "The code was ended: it ended itself. Nothing that this code did is kept" in (await told(notebook))[-1]
    assert await value(notebook, "nothing") == "not there"


async def test_without_a_person_a_draft_runs_and_nothing_is_kept(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nalone with nobody there")
    assert ran.status == "ok"
    assert "42" in ran.cards[0]
    assert "In a draft only: alone" in ran.plain
    assert await value(notebook, "alone") == "not there"


async def test_where_live_code_is_allowed_a_draft_is_only_made_when_asked_for(notebook: Notebook) -> None:
    await notebook.run("%agent allow live")
    assert (await notebook.run("%%agent\nhello")).turn["where"] == "live"
    assert (await notebook.run("%%agent --in draft\nhello")).turn["where"] == "draft"
    await notebook.run("%agent allow ask")
    assert (await notebook.run("%%agent\nhello again")).turn["where"] == "draft"
    assert "Python runs in the sandbox" in (await notebook.run("%agent in sandbox")).plain
    assert (await notebook.run("%%agent\nhello there")).turn["where"] == "sandbox"
    assert "in a draft of your kernel" in (await notebook.run("%agent in default")).plain


async def test_a_kernel_that_can_not_be_copied_asks_or_sends_copies_and_says_why(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run(f"{DF}\nimport sys, types\nsys.modules['jax'] = types.ModuleType('jax')\nword = 'given'")
    ran = await fresh_notebook.run("%%agent\nhello", [])
    assert ran.turn["where"] == "live"
    assert "No draft is possible: your kernel has loaded jax, which does not work in a copy." in ran.plain
    assert "No draft" not in (await fresh_notebook.run("%%agent\nhello once more", [])).plain, "it is told once"
    ran = await fresh_notebook.run("%%agent --in draft\nwith copies of df and {word}", [])
    assert ran.turn["where"] == "sandbox"
    assert "Python runs in the sandbox instead, on copies of variables." in ran.plain
    assert "6 given" in ran.cards[0]


async def test_what_is_too_large_to_copy_is_told_and_described(notebook: Notebook) -> None:
    await notebook.run("big = b'x' * (33 << 20)")
    ran = await notebook.run("%%agent --in sandbox\nthis is {big} and too large", [])
    assert "big is not in the sandbox; the model gets only its description: it is too large" in ran.plain
    assert "False" in ran.cards[0]


async def test_every_question_is_asked_before_a_draft_runs_where_the_person_wants_it(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --ask\nask first, called asked_for", ["y", "n"])
    assert ran.asked[0].startswith("Let the agent do this?")
    assert ran.asked[1] == KEEP.format("asked_for")


async def test_a_stored_answer_of_a_draft_does_not_outlive_the_kernel(fresh_notebook: Notebook) -> None:
    cells = {"a": "%%agent\nfor the run all", "b": "1 + 1"}
    await fresh_notebook.run_all(cells)
    assert (await fresh_notebook.run_all(cells))["a"].turn["stored"] is not None
    await fresh_notebook.restart()
    assert (await fresh_notebook.run_all(cells))["a"].turn["stored"] is None


async def test_a_result_of_the_sandbox_is_taken_as_a_copy_and_never_as_a_pickle(notebook: Notebook) -> None:
    await notebook.run(DF)
    await notebook.run("%%agent --in sandbox\n{df} in the box", [])
    ran = await notebook.run("%agent take boxed")
    assert ran.plain == "Now in your kernel: boxed: list of 3: 1, 2, 3."
    assert await value(notebook, "boxed") == "[1, 2, 3]"
    assert "numpy.ndarray, shape (2, 3)" in (await notebook.run("%agent take grid as mine")).plain
    assert (await notebook.run("mine.sum()")).plain == "np.int64(15)"
    assert "It replaces the variable of that name." in (await notebook.run("%agent take grid as mine")).plain
    assert "cannot be copied" in (await notebook.run("%agent take odd")).error
    assert "not a valid variable name" in (await notebook.run("%agent take boxed as 1x")).error
    assert "Agent:" in (await notebook.run("%agent take missing")).error


async def test_the_sandbox_is_rebuilt_from_this_branch_after_its_code_was_listed(notebook: Notebook) -> None:
    assert "nothing to rebuild" in (await notebook.run("%agent rebuild")).plain
    await notebook.run("%%agent --in sandbox\nrebuilt in the sandbox", [])
    ran = await notebook.run("%agent rebuild", ["n"])
    assert "kept = [1, 2]" in ran.plain
    assert "writes: open('a.txt', 'w')" in ran.plain
    assert "nothing was run" in ran.error
    assert "Rebuilt: 1 of 1 code blocks ran" in (await notebook.run("%agent rebuild --yes")).plain
    assert "kept: list of 2" in (await notebook.run("%agent take kept")).plain


async def test_what_live_code_may_not_do_is_not_done_by_keeping_it(notebook: Notebook) -> None:
    await notebook.run("%agent deny live")
    ran = await notebook.run("%%agent\nlive is denied, so `denied_one` stays", ["y", "y"])
    assert ran.asked == []
    assert "In a draft only: denied_one." in ran.plain
    kept = await notebook.run("%agent keep")
    assert kept.error.startswith("Agent: nothing was kept: you have denied live code in this session")
    refused = await notebook.run("%%agent\nlive is denied, so it cannot write", ["y", "y"])
    assert refused.asked == []
    assert "PermissionError" in refused.cards[0]
    await notebook.run("%agent allow live")
    assert (await notebook.run("%agent keep")).status == "ok"


async def test_a_draft_sees_nothing_of_the_server(notebook: Notebook) -> None:
    """Its store, with the conversations of other notebooks; connection files and their keys."""
    assert (
        "sessions.db"
        in (await notebook.run("import os; print(os.listdir('../data'), os.listdir('../runtime'))")).printed
    )
    ran = await notebook.run("%%agent\nlook around the server", [])
    assert [line for line in ran.cards[0].splitlines() if line.endswith(" not seen")] == [
        "data not seen",
        "runtime not seen",
    ]


async def test_a_turn_that_a_persons_own_code_asks_for_sees_what_is_there_by_then(notebook: Notebook) -> None:
    loop = "for town in ('Ulm', 'Jena'):\n    get_ipython().run_cell_magic('agent', '', 'print the town')"
    ran = await notebook.run(loop, [])
    assert ran.status == "ok"
    assert ("Ulm" in ran.cards[0], "Jena" in ran.cards[1]) == (True, True)
