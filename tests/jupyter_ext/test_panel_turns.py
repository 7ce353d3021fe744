"""Tests turns that a user starts outside of the kernel, as the panel does: the server runs their code in the idle
kernel.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from agent_kernel.notebook.display.media_bundle import BUNDLE
from tests.scripted import call_when
from tests.server import AgentServer, Json, follow, start_turn

TRIED = "import pandas\nprices.append(9)\ntotal = sum(prices)\nprint('tried')\npandas.DataFrame({'total': [total]})"
SCRIPT = [
    call_when("try it", "python", code=TRIED),
    call_when("try it", "python", code="1 / 0"),
    {"when": "try it", "text": "It would be 15."},
    call_when("compare", "python", code="prices.append(1)\nprint(sum(prices))"),
    *(
        call_when("compare", "python", code=f"prices.append(4)\nprint({label}sum(prices))")
        for label in ("", "'sum', ") * 3
    ),
    call_when("compare", "python", code="1 / 0"),
    {"when": "compare", "text": "It is 10."},
    call_when("compute", "python", code="found = sum(prices)\nfound"),
    call_when("compute", "variables"),
    call_when("compute", "read_cells", cells="0"),
    {"when": "compute", "text": "It is 6."},
    call_when("sleep", "python", code="import time\nprint('begun', flush=True)\ntime.sleep(600)"),
    call_when("draw", "python", code="import matplotlib.pyplot as plt\n%matplotlib inline\nplt.plot([1, 2]);"),
    {"when": "draw", "text": "Drawn."},
    call_when("die", "python", code="import os\nos.kill(os.getpid(), 9)"),
    call_when("afterwards", "python", code="'found' in globals()"),
    {"when": "afterwards", "text": "Gone."},
    call_when("begin another", "python", code="get_ipython().run_cell_magic('agent', '', 'from inside')"),
    {"when": "begin another", "text": "Refused."},
    {"when": "rain", "text": "Told."},
    {"text": "Nothing.", "loop": True},
]
TRAITS = {"tools": "python,notebook"}


@pytest.fixture(scope="module")
def kernel(server: AgentServer) -> str:
    kernel = asyncio.run(server.start_kernel("panel.ipynb"))
    asyncio.run(server.run_in_kernel(kernel, "prices = [1, 2, 3]"))
    return kernel


async def follow_and_answer(client: httpx.AsyncClient, turn: str, decision: str = "approve") -> list[Json]:
    """Return all events of a turn, answering its questions with ``decision``."""
    events = []
    async for event in follow(client, turn):
        events.append(event)
        if event["type"] == "approval.required":
            path = f"agent/v1/agent/approvals/{event['data']['approval']}"
            (await client.post(path, json={"decision": decision})).raise_for_status()
    return events


async def facts_about(server: AgentServer, kernel: str, where: str) -> list[str]:
    """Return what the model is told of the data, in a new session whose code would run ``where``."""
    async with server.client() as client:
        started = await start_turn(client, "What is in prices?", kernel=kernel, where=where, session=f"facts-{where}")
        await follow_and_answer(client, started["turn"])
        stored = (await client.get(f"agent/v1/sessions/{started['session']}/items")).json()
    return [item["message"]["content"] for item in stored["items"] if item["message"].get("hidden")]


def finished_calls(events: list[Json]) -> list[Json]:
    return [event["data"] for event in events if event["type"] == "call.finished"]


async def test_code_runs_in_the_idle_kernel_after_a_yes_and_the_notebook_is_read(
    server: AgentServer, kernel: str
) -> None:
    async with server.client() as client:
        started = await start_turn(client, "compute", kernel=kernel, where="live", answers=["*"])
        events = await follow_and_answer(client, started["turn"])
    ran, variables, cells = finished_calls(events)
    assert (ran["status"], ran["text"]) == ("success", "6")
    assert "found: int = 6\nprices: list of 3: 1, 2, 3" in variables["text"]
    assert "[0 c1 markdown]" in cells["text"]
    assert [event["data"]["kind"] for event in events if event["type"] == "approval.required"] == ["python.live"]
    assert "6" in await server.run_in_kernel(kernel, "print(found)")


RAIN = "import pandas\nrain = pandas.DataFrame({'month': ['May', 'June'], 'rain_mm': [58, 42]})"


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Plot rain_mm by month", "Variables"),
        ("What is in rain?", "Variables"),
        ("In which month did it fall?", "Variables"),
        ("Who is there?", "Newest tables"),
    ],
)
@pytest.mark.parametrize("where", ["draft", "live"])
async def test_the_model_sees_what_the_tables_that_a_prompt_is_about_contain(
    server: AgentServer, kernel: str, where: str, prompt: str, title: str
) -> None:
    await server.run_in_kernel(kernel, RAIN)
    async with server.client() as client:
        session = f"{where}-{prompt.partition(' ')[0]}"
        started = await start_turn(client, prompt, kernel=kernel, where=where, answers=["*"], session=session)
        await follow_and_answer(client, started["turn"])
        stored = (await client.get(f"agent/v1/sessions/{started['session']}/items")).json()
    told = [item["message"]["content"] for item in stored["items"] if item["message"].get("hidden")]
    assert [str(text).startswith(f"{title}: rain: DataFrame, 2 rows x 2 columns: month") for text in told] == [True]


@pytest.mark.parametrize("where", ["draft", "live"])
async def test_the_model_sees_the_beginning_of_a_file_that_a_prompt_names(
    server: AgentServer, kernel: str, where: str
) -> None:
    await server.run_in_kernel(kernel, RAIN)
    (server.root / "sales.csv").write_text("Datum;Umsatz\n01.02.2025;1.234,50\n", "utf-8-sig")
    async with server.client() as client:
        started = await start_turn(
            client, "Who is in sales.csv?", kernel=kernel, where=where, answers=["*"], session=f"file-{where}"
        )
        await follow_and_answer(client, started["turn"])
        stored = (await client.get(f"agent/v1/sessions/{started['session']}/items")).json()
    [told] = [item["message"]["content"] for item in stored["items"] if item["message"].get("hidden")]
    assert told.startswith("Files: ")
    assert "sales.csv" in told
    assert "sep=';'" in told


async def test_a_draft_needs_no_yes_and_leaves_the_kernel_as_it_was(server: AgentServer, kernel: str) -> None:
    async with server.client() as client:
        started = await start_turn(client, "try it", kernel=kernel, where="draft", answers=["*"])
        events = await follow_and_answer(client, started["turn"])
        tried, failed = finished_calls(events)
        [table] = tried["media"]
        shown = await client.get(f"agent/v1/sessions/{started['session']}/blobs/{table['hash']}")
    assert not [event for event in events if event["type"] == "approval.required"]
    assert {event["data"]["where"] for event in events if event["type"] == "call.started"} == {"draft"}
    assert tried["status"] == "success"
    assert tried["text"].startswith("tried\n")
    assert "15" in tried["text"]
    assert {"total", "prices"} <= set(tried["details"]["drafted"])
    assert table["mime"] == BUNDLE
    assert "<td>15</td>" in shown.json()["text/html"]
    assert (failed["status"], failed["text"].splitlines()[-1]) == ("error", "ZeroDivisionError: division by zero")
    assert await facts_about(server, kernel, "draft") == ["Variables: prices: list of 4: 1, 2, 3, 9"]
    assert await facts_about(server, kernel, "live") == ["Variables: prices: list of 3: 1, 2, 3"]
    assert "[1, 2, 3] False" in await server.run_in_kernel(kernel, "print(prices, 'total' in globals())")


async def test_programs_are_compared_in_a_draft_of_the_idle_kernel(server: AgentServer, kernel: str) -> None:
    async with server.client() as client:
        started = await start_turn(client, "compare", kernel=kernel, where="draft", effort="thorough", answers=["*"])
        events = await follow_and_answer(client, started["turn"])
    [ran] = finished_calls(events)
    assert (ran["status"], ran["text"]) == ("success", "10")
    said = [event["data"]["text"] for event in events if event["type"] == "notice"]
    assert said == ["6 of 8 programs that were tried have this result."]
    assert "[1, 2, 3]" in await server.run_in_kernel(kernel, "print(prices)")


async def test_stopping_the_turn_stops_its_code_and_leaves_the_kernel_idle(server: AgentServer, kernel: str) -> None:
    async with server.client() as client:
        started = await start_turn(client, "sleep", kernel=kernel, where="live", answers=["*"])
        events = asyncio.create_task(follow_and_answer(client, started["turn"]))
        async for event in follow(client, started["turn"]):
            if event["type"] == "call.output":
                break
        (await client.post(f"agent/v1/turns/{started['turn']}/cancel", json={})).raise_for_status()
        assert (await events)[-1]["data"]["state"] == "cancelled"
    assert "idle" in await asyncio.wait_for(server.run_in_kernel(kernel, "print('idle')"), 60)


async def test_figures_reach_the_panel_with_the_end_of_the_call(server: AgentServer, kernel: str) -> None:
    async with server.client() as client:
        started = await start_turn(client, "draw", kernel=kernel, where="live", answers=["*"])
        [ran] = finished_calls(await follow_and_answer(client, started["turn"]))
    assert [medium["mime"] for medium in ran["media"]] == ["image/png"]
    assert ran["media"][0]["data"]


async def test_code_of_the_agent_begins_no_turn_that_would_wait_for_its_own_end(
    server: AgentServer, kernel: str
) -> None:
    async with server.client() as client:
        started = await start_turn(client, "begin another", kernel=kernel, where="live", answers=["*"])
        [ran] = finished_calls(await follow_and_answer(client, started["turn"]))
    assert ran["status"] == "error"
    assert "cannot start a turn of its own" in ran["text"]


async def test_the_kernels_own_credential_makes_the_server_run_nothing(server: AgentServer, kernel: str) -> None:
    """What its turns run is run by its own magic."""
    async with server.kernel_client(await server.kernel_token(kernel)) as client:
        tools = (await client.post("agent/v1/tools", json={"where": "live"})).json()["tools"]
        assert {tool["name"] for tool in tools} & {"variables", "run_cell", "running"} == set()
        assert "read_cells" in {tool["name"] for tool in tools}
    async with server.client() as client:
        tools = (await client.post("agent/v1/tools", json={"kernel": kernel, "where": "live"})).json()["tools"]
        assert {"variables", "run_cell", "running", "last_error"} <= {tool["name"] for tool in tools}


async def test_a_kernel_that_dies_ends_the_turn_and_its_next_life_runs_the_next_one(server: AgentServer) -> None:
    kernel = await server.start_kernel("dying.ipynb")
    await server.run_in_kernel(kernel, "found = 1")
    async with server.client() as client:
        started = await start_turn(client, "die", kernel=kernel, where="live", answers=["*"])
        end = (await follow_and_answer(client, started["turn"]))[-1]["data"]
        assert (end["state"], end["reason"]) == ("cancelled", "the kernel died and was restarted")
        started = await start_turn(client, "afterwards", kernel=kernel, where="live", answers=["*"])
        [ran] = finished_calls(await follow_and_answer(client, started["turn"]))
    assert (ran["status"], ran["text"]) == ("success", "False")
