"""Tests ``%agent``, completion, and the messages that a user reads when something is wrong."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.notebook.notebook import Notebook

SCRIPT = [
    {"when": "left running", "text": "word " * 3000, "deltas": 3000, "delay": 0.02},
    {"text": "Hello.", "loop": True},
]


PATIENT = "from agent_kernel.notebook.magic import completion\ncompletion.ASK_S = 10.0"
"""On a busy machine the list of models takes longer than a person would wait for a completion."""
TRAITS = {"engines": {"far": {"url": "https://models.example.com/v1", "model": "big"}}}


async def test_status_names_session_notebook_model_and_permission(notebook: Notebook) -> None:
    plain = (await notebook.run("%agent status")).plain
    assert re.search(r"notebook +shared\.ipynb", plain)
    assert re.search(r"model +scripted, local", plain)
    assert re.search(r"your kernel +asks before code runs", plain)


async def test_new_begins_a_session_and_sessions_lists_all(notebook: Notebook) -> None:
    await notebook.run("%agent new A title of mine")
    await notebook.run("%%agent\nhello")
    rows = (await notebook.run("%agent sessions")).plain.splitlines()
    [mine] = [row for row in rows if "A title of mine" in row]
    assert mine.endswith("this notebook")
    assert len(rows) > 2
    assert "A title of mine (1 turn)" in (await notebook.run("%agent status")).plain


async def test_use_goes_back_to_an_earlier_session_of_the_notebook(notebook: Notebook) -> None:
    await notebook.run("%%agent\nhello")
    before = (await notebook.run("%%agent\nhello")).turn["session"]
    await notebook.run("%agent new")
    assert (await notebook.run("%%agent\nhello")).turn["session"] != before
    await notebook.run(f"%agent use {before}")
    assert (await notebook.run("%%agent\nhello")).turn["session"] == before


async def test_using_the_session_of_another_notebook_waits_for_the_person_in_the_browser(
    notebook: Notebook, fresh_notebook: Notebook
) -> None:
    other = (await fresh_notebook.run("%%agent\nhello")).turn["session"]
    running = asyncio.create_task(notebook.run(f"%agent use {other}"))
    await notebook.until_shown("belongs to another notebook")
    [url] = re.findall(r"href='([^']+)'", notebook.shown[0])
    assert not running.done()
    async with notebook.server.client() as http:
        page = await http.get(url)
        token = http.cookies.get("_xsrf") or ""
        done = await http.post(url, data={"decision": "confirmed", "_xsrf": token}, headers={"Referer": url})
    assert page.status_code == done.status_code == 200
    assert (await running).status == "ok"
    assert (await notebook.run("%%agent\nhello")).turn["session"] == other


async def test_leaving_the_wait_for_confirmation_changes_nothing(notebook: Notebook, fresh_notebook: Notebook) -> None:
    other = (await fresh_notebook.run("%%agent\nhello")).turn["session"]
    running = asyncio.create_task(notebook.run(f"%agent use {other}"))
    await notebook.until_shown("belongs to another notebook")
    await notebook.interrupt()
    assert (await running).error == "Agent: stopped; nothing changed."
    assert (await notebook.run("%%agent\nhello")).turn["session"] != other


async def test_a_new_turn_can_begin_a_session_and_name_one(notebook: Notebook) -> None:
    first = (await notebook.run("%%agent\nhello")).turn["session"]
    second = (await notebook.run("%%agent --new\nhello")).turn["session"]
    assert first != second
    assert (await notebook.run(f"%%agent -s {first}\nhello")).turn["session"] == first


async def test_models_are_listed_with_size_licence_and_publisher(notebook: Notebook) -> None:
    plain = (await notebook.run("%agent model")).plain
    assert re.search(r"coder-0\.5b .* MB +\S*apache-2\.0", plain, re.IGNORECASE)
    assert "This notebook talks to scripted (local, ready)." in plain


async def test_a_notebook_is_given_to_an_engine_of_the_configuration_and_told_where_that_is(notebook: Notebook) -> None:
    chosen = (await notebook.run("%agent model far")).plain
    assert "This notebook talks to big (remote: models.example.com)." in chosen
    assert "the whole conversation is sent to models.example.com" in chosen
    listed = (await notebook.run("%agent model")).plain
    assert re.search(r"far +big +remote: models\.example\.com", listed)
    assert "This notebook talks to big (remote: models.example.com, ready)." in listed
    await notebook.run(PATIENT)
    assert "far" in await notebook.complete("%agent model ")
    assert "This notebook talks to scripted (local)." in (await notebook.run("%agent model reset")).plain
    assert (await notebook.run("%%agent\nhello")).text == "Hello."


async def test_a_url_that_nobody_configured_waits_for_the_person_in_the_browser(notebook: Notebook) -> None:
    running = asyncio.create_task(notebook.run("%agent model https://other.example/v1#big"))
    await notebook.until_shown("other.example is not in the configuration of the server")
    await notebook.interrupt()
    assert (await running).error == "Agent: stopped; nothing changed."
    assert "talks to scripted" in (await notebook.run("%agent model")).plain


async def test_where_is_the_default_of_later_cells(notebook: Notebook) -> None:
    await notebook.run("%agent where sandbox")
    assert (await notebook.run("%%agent\nhello")).turn["where"] == "sandbox"
    assert (await notebook.run("%%agent --in live\nhello")).turn["where"] == "live"
    await notebook.run("%agent where live")
    assert (await notebook.run("%%agent\nhello")).turn["where"] == "live"


async def test_stop_ends_a_turn_that_runs_without_its_cell(notebook: Notebook) -> None:
    async with notebook.server.client() as http:
        body = {"prompt": "left running", "kernel": notebook.kernel}
        turn = (await http.post("agent/v1/turns", json=body)).json()["turn"]
        assert "Stopped 1 turn." in (await notebook.run("%agent stop")).plain
        assert (await http.get(f"agent/v1/turns/{turn}")).json()["state"] == "cancelled"
    assert "No turn is running." in (await notebook.run("%agent stop")).plain


async def test_help_lists_commands_and_options(notebook: Notebook) -> None:
    plain = (await notebook.run("%agent help")).plain
    assert "%agent sessions" in plain
    assert "--max-tokens" in plain
    assert "--max-tokens" in (await notebook.run("%%agent --help")).plain
    assert (await notebook.run("%%agent hello in one line")).text == "Hello."


async def test_a_question_mark_at_the_end_of_a_line_belongs_to_the_question(notebook: Notebook) -> None:
    assert (await notebook.run("%agent ask hello?")).text == "Hello."
    assert "Docstring" in str((await notebook.run("%agent?")).payload), "IPython's own help"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("%agent stauts", "Agent: %agent has no command 'stauts'. Did you mean %agent status?"),
        (
            "%agent what is the mean of df?",
            "Agent: %agent has no command 'what'. To ask a question, write %%agent on a line of its own",
        ),
        ("%agent foo", "Agent: %agent has no command 'foo'. %agent help lists the commands."),
        ("%agent use", "Agent: %agent use needs the id of a session; %agent sessions lists them."),
        ("%agent use nothing", "Agent: There is no session nothing."),
        ("%agent model pull nothing", "Agent: There is no model 'nothing'. Models: coder-0.5b, coder-1.5b, "),
        ("%agent where there", "Agent: %agent in takes live, draft, sandbox or default."),
        ("%%agent\n  \n", "Agent: the prompt is missing. Write it below %%agent."),
        ("%%agent -v missing\nhello", "Agent: there is no variable 'missing' in this kernel."),
        ("%%agent --seed x\nhello", "Agent: --seed must be a number, not 'x'."),
        ("%%agent --temperature 99\nhello", "Agent: sampling.temperature"),
        ("%%agent -m other\nhello", "Agent: There is no engine or model 'other' here."),
        ("%agent model ohter", "Agent: There is no engine or model 'ohter' here."),
        ("%agent model a b", "Agent: Usage: %agent model [NAME|URL[#MODEL]|reset], %agent model pull NAME"),
        (
            "%agent model http://me:secret@host/v1",
            "Agent: The URL of a model server cannot contain a name or a password.",
        ),
    ],
)
async def test_a_mistake_is_answered_in_one_line(notebook: Notebook, code: str, line: str) -> None:
    ran = await notebook.run(code)
    assert ran.status == "error"
    assert ran.error.startswith(line)
    assert "\n" not in ran.error
    assert len(ran.outputs) == 1


async def test_completion_offers_commands_options_sessions_and_models_alone(notebook: Notebook) -> None:
    await notebook.run(PATIENT)
    session = (await notebook.run("%%agent\nhello")).turn["session"]
    assert await notebook.complete("%agent st") == ["start", "status", "stop"]
    assert {"ask", "live", "web"} <= set(await notebook.complete("%agent allow "))
    models = ["coder-0.5b", "coder-1.5b", "coder-7b", "qwen3-14b", "qwen3-4b", "qwen3-8b", "tiny"]
    assert await notebook.complete("%agent model pull ") == models
    assert session in await notebook.complete("%agent use ")
    assert await notebook.complete("%%agent --in ") == ["draft", "live", "sandbox"]
    assert await notebook.complete("%%agent -f ") == ["code", "json", "md", "text"]
    assert {"int", "DataFrame"} <= set(await notebook.complete("%%agent -> rows: "))
    assert await notebook.complete("%%agent --branch ") == ["main"]
    assert {"--background", "--max-tokens"} <= set(await notebook.complete("%%agent --"))
    assert "--auto" in await notebook.complete("%agent ask ")
    assert "%agent" in await notebook.complete("%age")


async def test_a_kernel_without_our_server_says_what_to_do_in_one_line(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run(
        "%unload_ext agent_kernel\nfrom agent_kernel.notebook.server_client import server_of_this_kernel\n"
        "server_of_this_kernel.cache_clear()\n%load_ext agent_kernel"
    )
    ran = await fresh_notebook.run("%%agent\nhello")
    assert ran.error.startswith("Agent: This kernel was not started by a Jupyter server with agent-kernel.")
    assert "%agent start starts a server for this kernel alone." in ran.error
    assert "install agent-kernel where the Jupyter server runs" in ran.error


async def test_loading_twice_and_unloading_are_harmless(fresh_notebook: Notebook) -> None:
    assert (await fresh_notebook.run("%load_ext agent_kernel\n%reload_ext agent_kernel")).status == "ok"
    assert (await fresh_notebook.run("%%agent\nhello")).text == "Hello."
    assert (await fresh_notebook.run("%unload_ext agent_kernel")).status == "ok"
    assert "not found" in (await fresh_notebook.run("%agent status")).all
    assert (await fresh_notebook.run("%load_ext agent_kernel\n%agent status")).status == "ok"


async def test_the_status_before_the_first_turn_has_no_row_without_a_value(fresh_notebook: Notebook) -> None:
    status = (await fresh_notebook.run("%agent status")).plain
    assert "starts with the first turn" in status
    assert "session id" not in status
    assert "branch" not in status
