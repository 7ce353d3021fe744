"""Tests turns as users run them: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.notebook.notebook import SILENCE, Notebook
from tests.server import followed

QUESTION = "Run this in your kernel? [y]es / [n]o / [e]dit in the panel / [s]ession / never: "

BOXED = """import matplotlib.pyplot as plt
plt.plot([1, 2])
print('in the box')
boxed = 42
boxed"""
SWALLOWS = """import time
for _ in range(600):
    try:
        time.sleep(0.1)
    except KeyboardInterrupt:
        break
"""


def python(code: str, when: str, **more: Any) -> dict[str, Any]:
    return {"when": when, "calls": [{"name": "python", "arguments": {"code": code}}], **more}


SCRIPT = [
    {"when": "tell me slowly", "text": "one two three four", "deltas": 9, "delay": 0.06},
    python("total = sum(prices)\nprint('added')\ntotal", "add the prices", text="I add them. "),
    {"when": "add the prices", "text": "It is 6."},
    python("plt.plot([1, 2, 3])\npd.DataFrame({'a': [1, 2]})", "draw and tabulate"),
    {"when": "draw and tabulate", "text": "Drawn."},
    python(BOXED, "keep it in the box"),
    {"when": "keep it in the box", "text": "Boxed."},
    python("touched = 1", "say no to this"),
    {"when": "say no to this", "text": "Then not."},
    python("unclear = 1", "be unclear"),
    {"when": "be unclear", "text": "Then not."},
    python("first = 1", "remember my yes"),
    python("second = 2", "remember my yes"),
    {"when": "remember my yes", "text": "Both done."},
    python("third = 3", "and once more"),
    {"when": "and once more", "text": "Done."},
    python("unattended = 1", "nobody is here"),
    {"when": "nobody is here", "text": "It could not run."},
    python("attended = 1", "allowed beforehand"),
    {"when": "allowed beforehand", "text": "It ran."},
    python("typed = 1", "live for this cell"),
    {"when": "live for this cell", "text": "It ran."},
    python("asked = 1", "live but ask"),
    {"when": "live but ask", "text": "It ran."},
    python("def f(x):\n    return x['nope']\nf({})", "make a mistake"),
    {"when": "make a mistake", "text": "There is no such key."},
    {"when": "be corrected", "calls": [{"id": "call_1a", "name": "python", "arguments": {"code": "np.NaN"}}]},
    {"when": "be corrected", "calls": [{"id": "call_1a-fix", "name": "python", "arguments": {"code": "np.nan"}}]},
    {"when": "be corrected", "text": "It is no number."},
    python("def f():\n        a = 1\n    b = 2\n", "indent it badly"),
    {"when": "indent it badly", "text": "I mend it."},
    {"when": "a long story", "text": "word " * 2000, "deltas": 2000, "delay": 0.02},
    {"when": "another story", "text": "word " * 2000, "deltas": 2000, "delay": 0.02},
    python("import time\nprint('begun')\ntime.sleep(60)", "sleep for long"),
    python(SWALLOWS, "swallow the stop"),
    python("unanswered = 1", "ask and be stopped"),
    python("print('before')\nexit()", "leave the kernel"),
    python("import sys\nsys.exit(3)", "leave the kernel"),
    {"when": "leave the kernel", "text": "Still here."},
    python("import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')", "wait for something"),
    {"when": "wait for something", "text": "Waited."},
    python("display('shown')\nclear_output()\nprint('x' * 9000)", "print a lot"),
    {"when": "print a lot", "text": "Printed."},
    {"when": "break down", "text": "I begin", "fault": "the engine broke"},
    {"when": "with html", "text": "<img src=x onerror=alert(1)> **bold** `a<b`", "reasoning": "<b>hm</b>"},
    {"when": "about the", "text": "Known."},
    python("x = 1", "before the restart"),
    {"when": "before the restart", "text": "Before."},
    {"when": "after the restart", "text": "After."},
    {"when": "look at this", "text": "A picture."},
    {"when": "which cell", "text": "This one.", "loop": True},
]


async def test_text_grows_in_one_output_and_ends_with_what_it_cost(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\ntell me slowly")
    assert ran.status == "ok"
    assert ran.text == "one two three four"
    partial = [text for text in ran.history if "one two three four".startswith(text) and text]
    assert len(partial) >= 3, "it was shown while it grew"
    assert ran.turn["state"] == "committed"
    assert "tokens read" in ran.plain
    assert len(ran.outputs) == 2, "nothing stays of what was only waited for"


async def test_approved_code_uses_and_changes_the_variables_of_the_person(notebook: Notebook) -> None:
    await notebook.run("prices = [1, 2, 3]")
    ran = await notebook.run("%%agent\nadd the prices", ["y"])
    assert ran.asked == [QUESTION]
    assert ran.text.split("\n") == ["I add them. ", "It is 6."]
    assert (await notebook.run("total")).plain == "6"
    [card] = ran.cards
    assert "total = sum(prices)" in card
    assert "done" in card
    assert "added\n6" in card
    assert "open" not in card.partition(">")[0], "a card that is done is closed"
    told = [message for message in await notebook.messages() if message["role"] == "tool"]
    assert told[0]["content"] == "added\n6"
    async with notebook.server.client() as http:
        events = await followed(http, ran.turn["turn"])
    [details] = [event["data"]["details"] for event in events if event["type"] == "call.finished"]
    assert details["variables"] == ["total"]


async def test_figures_and_tables_are_outputs_of_their_own_and_missing_imports_are_shown(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in live\ndraw and tabulate")
    [png] = ran.of("image/png")
    assert len(png) > 1000
    assert any("<table" in html and "dataframe" in html for html in ran.of("text/html"))
    assert "import pandas as pd\nimport matplotlib.pyplot as plt\nplt.plot" in ran.cards[0]
    [told] = [message for message in await notebook.messages() if message["role"] == "tool"]
    text, *media = told["content"]
    assert text["text"] == "   a\n0  1\n1  2\n[1 figure(s) shown]"
    assert "image/png" in [medium["mime"] for medium in media]  # beside it the table, as the cell shows it


async def test_a_picture_goes_with_the_question_and_a_text_model_says_that_it_did_not_see(notebook: Notebook) -> None:
    made = "from PIL import Image; fox = Image.new('RGB', (4, 4)); fox.save('fox.jpg')"
    assert (await notebook.run(made)).status == "ok"
    ran = await notebook.run("%%agent --image fox --image fox.jpg\nlook at this")
    assert ran.text == "A picture."
    assert "2 image(s) were not sent to it" in ran.plain
    [asked] = [message for message in await notebook.messages() if isinstance(message["content"], list)]
    text, png, jpeg = asked["content"]
    assert (text["text"], png["mime"], jpeg["mime"]) == ("look at this", "image/png", "image/jpeg")
    refused = await notebook.run("%%agent --image fax.jpg\nlook at that")
    assert "--image fax.jpg: No such file" in refused.error


async def test_code_in_the_sandbox_needs_no_question_and_shows_value_and_figure(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in sandbox\nkeep it in the box", [])
    assert ran.asked == []
    assert "python in the sandbox · done" in ran.cards[0]
    assert "in the box\n42" in ran.cards[0]
    assert len(ran.of("image/png")) == 1
    assert "NameError" in (await notebook.run("boxed")).error


async def test_after_a_no_the_code_has_not_run_and_the_turn_goes_on(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nsay no to this", ["n"])
    assert ran.status == "ok"
    assert "not run" in ran.cards[0]
    assert ran.text == "Then not."
    assert "NameError" in (await notebook.run("touched")).error


async def test_an_unclear_answer_is_asked_for_again_and_silence_means_no(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nbe unclear", ["perhaps", "", ""])
    assert ran.asked == [QUESTION] * 3
    assert "not run" in ran.cards[0]
    assert "NameError" in (await notebook.run("unclear")).error


async def test_session_as_an_answer_is_remembered_for_later_calls(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent\nremember my yes", ["s"])).asked == [QUESTION]
    assert (await notebook.run("first + second")).plain == "3"
    assert (await notebook.run("%%agent\nand once more", [])).asked == []
    assert (await notebook.run("third")).plain == "3"


async def test_without_a_person_live_code_is_denied_at_once_with_the_reason(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nnobody is here")
    assert ran.status == "ok"
    assert "nobody can answer" in ran.cards[0]
    assert "NameError" in (await notebook.run("unattended")).error


async def test_allow_live_lets_a_headless_notebook_run_code_until_it_is_withdrawn(notebook: Notebook) -> None:
    await notebook.run("%agent allow live")
    assert (await notebook.run("%%agent\nallowed beforehand")).text == "It ran."
    assert (await notebook.run("attended")).plain == "1"
    await notebook.run("%agent allow ask")
    status = await notebook.run("%agent status")
    assert "asks before code runs" in status.plain


async def test_in_live_typed_in_the_cell_allows_that_turn_alone(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent --in live\nlive for this cell", [])).asked == []
    assert (await notebook.run("typed")).plain == "1"


async def test_ask_asks_even_for_what_was_allowed(notebook: Notebook) -> None:
    await notebook.run("%agent allow live")
    assert (await notebook.run("%%agent --in live --ask\nlive but ask", ["y"])).asked == [QUESTION]


async def test_a_failing_call_shows_the_traceback_and_tells_the_model_its_short_form(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in live\nmake a mistake")
    assert ran.status == "ok"
    assert "KeyError" in ran.cards[0]
    assert "failed" in ran.cards[0]
    assert "\x1b" not in ran.cards[0]
    assert not ran.error, "an error of the agent's code is no error of the cell"
    [told] = [message["content"] for message in await notebook.messages() if message["role"] == "tool"]
    assert told.splitlines()[0] == "Traceback (most recent call last):"
    assert "line 2, in f" in told
    assert told.splitlines()[-1] == "KeyError: 'nope'"
    assert "IPython" not in told


async def test_a_correction_takes_the_place_of_the_failed_call_in_the_cell(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in live\nbe corrected")
    [card] = ran.cards
    assert "done" in card.partition("</summary>")[0]
    assert "corrected" in card.partition("</summary>")[0]
    assert "Corrected without the model after AttributeError" in card
    assert "np.NaN" in card


async def test_badly_indented_code_is_a_failed_call_that_the_model_reads(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in live\nindent it badly")
    assert (ran.status, ran.error) == ("ok", "")
    assert "failed" in ran.cards[0]
    [told] = [message["content"] for message in await notebook.messages() if message["role"] == "tool"]
    assert told.splitlines()[-1].startswith("IndentationError: unindent does not match")
    assert ran.text.endswith("I mend it.")


async def interrupt_cell(notebook: Notebook, code: str, when: str) -> tuple[Any, float]:
    """Run a cell and interrupt it when its output contains ``when``. Return the result and the seconds until
    it ended.
    """
    running = asyncio.create_task(notebook.run(code))
    await notebook.until_shown(when)
    started = time.monotonic()
    await notebook.interrupt()
    ran = await running
    return ran, time.monotonic() - started


async def test_an_interrupt_stops_the_turn_in_one_line_and_keeps_the_partial_answer(notebook: Notebook) -> None:
    ran, seconds = await interrupt_cell(notebook, "%%agent\na long story", "word word")
    assert ran.status == "error", "Run All stops here"
    assert ran.error == "Agent: stopped; the answer so far is kept."
    assert ran.text.startswith("word word")
    assert ran.text.endswith("*(cut short)*")
    assert ran.turn["state"] == "cancelled"
    assert seconds < 20
    stored = (await notebook.messages())[-1]
    assert stored["status"] == "interrupted"
    assert stored["content"].startswith("word word")


async def test_a_turn_that_is_stopped_in_the_panel_says_so_in_its_cell(notebook: Notebook) -> None:
    running = asyncio.create_task(notebook.run("%%agent\nanother story"))
    await notebook.until_shown("word word")
    async with notebook.server.client() as http:
        session = (await http.get("agent/v1/sessions")).json()["sessions"][0]["id"]
        turn = (await http.get(f"agent/v1/sessions/{session}/turns")).json()["turns"][-1]
        assert turn["state"] == "open"
        await http.post(f"agent/v1/turns/{turn['turn']}/cancel", json={})
    ran = await running
    assert (ran.status, ran.error) == ("error", "Agent: You stopped this turn.")


async def test_an_interrupt_reaches_the_code_of_the_agent(notebook: Notebook) -> None:
    ran, seconds = await interrupt_cell(notebook, "%%agent --in live\nsleep for long", "begun")
    assert ran.error.startswith("Agent: stopped")
    assert "stopped" in ran.cards[0]
    assert seconds < 20
    assert (await notebook.run("1 + 1")).plain == "2"


async def test_code_that_swallows_the_interrupt_does_not_go_on_with_the_turn(notebook: Notebook) -> None:
    ran, _ = await interrupt_cell(notebook, "%%agent --in live\nswallow the stop", "running")
    assert ran.error.startswith("Agent: stopped")


async def test_an_interrupt_while_the_person_is_asked_runs_nothing(notebook: Notebook) -> None:
    running = asyncio.create_task(notebook.run("%%agent\nask and be stopped", [SILENCE]))
    await notebook.until_asked()
    await notebook.interrupt()
    ran = await running
    assert ran.error == "Agent: stopped; the answer so far is kept."
    assert "stopped" in ran.cards[0]
    assert "NameError" in (await notebook.run("unanswered")).error


async def test_exit_in_the_code_of_the_agent_leaves_the_kernel_alive(notebook: Notebook) -> None:
    await notebook.run("mine = 7")
    assert (await notebook.run("%%agent --in live\nleave the kernel")).text == "Still here."
    assert (await notebook.run("mine")).plain == "7"


async def test_top_level_await_works_inside_the_cell(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in live\nwait for something")
    assert "awaited" in ran.cards[0]
    assert (await notebook.run("await asyncio.sleep(0); print('mine')")).printed == "mine\n"


async def test_long_output_is_cut_for_the_model_and_clear_output_clears_nothing_of_ours(notebook: Notebook) -> None:
    await notebook.run("from IPython.display import clear_output, display")
    ran = await notebook.run("%%agent --in live\nprint a lot")
    assert "'shown'" in ran.plain
    assert ran.text == "Printed."
    [told] = [message["content"] for message in await notebook.messages() if message["role"] == "tool"]
    assert len(told) < 4_200
    assert "characters left out" in told


async def test_a_turn_that_fails_keeps_its_words_and_ends_in_one_line(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nbreak down")
    assert ran.status == "error"
    assert ran.error == "Agent: the engine broke"
    assert ran.text == "I begin *(cut short)*"
    assert ran.turn["state"] == "failed"


async def test_html_of_the_model_is_text_everywhere(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nwith html")
    assert "<img" not in ran.text
    assert "**bold**" in ran.text
    assert "<b>" not in ran.cards[0]
    assert "&lt;b&gt;hm" in ran.cards[0]


async def test_a_variable_in_braces_is_told_as_a_hidden_note_and_the_prompt_keeps_its_name(notebook: Notebook) -> None:
    await notebook.run("import pandas\ndf = pandas.DataFrame({'day': [1, 2], 'kind': ['sun', 'rain']})\nrate = 0.5")
    await notebook.run('%%agent\nabout the {rate} and df and {unknown} and {"json": 1}')
    hidden, prompt, *_ = await notebook.messages()
    assert prompt["content"] == 'about the rate and df and {unknown} and {"json": 1}'
    assert hidden["hidden"]
    assert "rate: float = 0.5" in hidden["content"]
    assert "df: DataFrame, 2 rows x 2 columns: day int64, kind" in hidden["content"]
    assert "kind values: sun, rain" in hidden["content"]


async def test_a_restarted_kernel_goes_on_with_the_session_and_says_what_was_lost(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run("%%agent --in live\nbefore the restart", [])
    await fresh_notebook.restart()
    ran = await fresh_notebook.run("%%agent\nafter the restart")
    assert "variables defined earlier are gone" in ran.plain
    said = [message["content"] for message in await fresh_notebook.messages() if message["role"] == "assistant"]
    assert said == ["", "Before.", "After."]


async def test_the_cell_is_known_by_its_id_or_by_its_source(notebook: Notebook) -> None:
    assert (await notebook.run("%%agent\nwhich cell", cell="cell-7")).turn["cell"] == "cell-7"
    first = (await notebook.run("%%agent\nwhich cell")).turn["cell"]
    again = (await notebook.run("%%agent\nwhich cell")).turn["cell"]
    assert (first.partition(":")[2], again.partition(":")[2]) == ("1", "2")
    assert first.partition(":")[0] == again.partition(":")[0]


async def test_programs_started_by_the_person_do_not_inherit_the_credential(fresh_notebook: Notebook) -> None:
    ran = await fresh_notebook.run(
        "import os, subprocess\nprint(subprocess.run('env', capture_output=True, text=True).stdout)"
    )
    assert "AGENT_KERNEL_URL" in ran.printed
    assert "AGENT_KERNEL_TOKEN" not in ran.printed
