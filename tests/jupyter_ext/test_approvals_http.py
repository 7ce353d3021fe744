"""Tests questions about calls over HTTP: which turns wait, who may answer, and what remains after the server has
stopped.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import Json, followed, start_turn, wait_for_event

EXTENSIONS = ["tests.jupyter_ext.probe_tools"]
MCP = {"calls": [{"name": "probe_mcp", "arguments": {}}]}
LIVE = {"calls": [{"name": "probe_python_live", "arguments": {}}]}
WAITS = "approval.required"


def words(*told: str, **what: Any) -> list[Json]:
    """Return a script in which each prompt, once, makes the model call a tool and then answer ``Done.``"""
    return [entry for word in told for entry in ({"when": word, **what}, {"when": word, "text": "Done."})]


SCRIPT = [
    *words("edited", calls=[{"name": "probe_python_live", "arguments": {"code": "drop()"}}]),
    *words("no", "listed", "shown", "for good", "never", "silence", "mistral", **MCP),
    *words("later", **MCP),
    {"text": "Done.", "loop": True},
]


TRAITS = {"approval_timeout_s": 5.0, "tools": "recall"}


async def start_and_wait_for_question(
    client: httpx.AsyncClient, prompt: str, answers: str = "*", **body: Any
) -> tuple[Json, Json]:
    """Start a turn. Return it and its question."""
    turn = await start_turn(client, prompt, answers=[answers], **body)
    return turn, (await wait_for_event(client, turn["turn"], WAITS))["data"]


async def answer(client: httpx.AsyncClient, question: Json, **body: Any) -> httpx.Response:
    return await client.post(f"agent/v1/agent/approvals/{question['approval']}", json=body)


async def result(client: httpx.AsyncClient, turn: Json) -> tuple[str, str]:
    events = await followed(client, turn["turn"])
    [end] = [event["data"] for event in events if event["type"] == "call.finished"]
    return end["status"], end["text"]


async def test_an_answer_counts_once_and_can_be_said_again(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "no")
    first = await answer(api, question, decision="deny", message="not today")
    assert (first.status_code, first.json()) == (
        200,
        {"status": "resolved", "decision": "deny", "remember": "once", "message": "not today"},
    )
    assert await result(api, turn) == ("denied", "This call did not run: denied: not today.")
    again = await answer(api, question, decision="deny")
    assert (again.status_code, again.json()) == (200, first.json())
    other = await answer(api, question, decision="approve")
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
    assert other.json()["error"]["details"] == {"decision": "deny", "remember": "once", "message": "not today"}
    unknown = await api.post("agent/v1/agent/approvals/appr_0", json={"decision": "deny"})
    assert (unknown.status_code, unknown.json()["status"]) == (404, "not_found")
    found = (await api.get(f"agent/v1/agent/approvals/{question['approval']}")).json()
    assert (found["outcome"], found["message"], found["turn"]) == ("deny", "not today", turn["turn"])


async def test_who_saw_something_else_does_not_decide(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "shown")
    wrong = await answer(api, question, decision="approve", shown="0" * 64)
    assert (wrong.status_code, "a different call" in wrong.json()["error"]["message"]) == (409, True)
    assert (await answer(api, question, decision="approve", shown=question["shown"])).status_code == 200
    assert await result(api, turn) == ("success", "it ran")


async def test_a_person_edits_the_code_and_exactly_that_runs(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "edited")
    assert (question["editable"], question["code"]) == ("code", "drop()")
    hidden = await answer(api, question, decision="approve", edited="keep()\u202e")
    assert (hidden.status_code, "U+202E" in hidden.json()["error"]["message"]) == (400, True)
    longer = await answer(api, question, decision="approve", edited="keep()", remember="session")
    assert longer.status_code == 400
    elsewhere = {"decision": "approve", "edited": "keep()", "shown": "0" * 64}
    assert (await answer(api, question, **elsewhere)).status_code == 409
    for _ in range(2):
        reply = await answer(api, question, decision="approve", edited="keep()", shown=question["shown"])
        assert reply.status_code == 200
    status, text = await result(api, turn)
    assert (status, text.endswith("it ran keep()")) == ("success", True)
    assert "The person changed your text" in text
    assert (await answer(api, question, decision="approve")).status_code == 409
    [stored] = (await api.get(f"agent/v1/sessions/{turn['session']}/turns")).json()["turns"]
    [resolved] = [event["data"] for event in stored["events"] if event["type"] == "approval.resolved"]
    assert resolved["edited"] == "keep()"


async def test_what_waits_is_listed_as_its_event_shows_it(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "listed")
    [listed] = (await api.get("agent/v1/agent/approvals")).json()["approvals"]
    assert {name: listed[name] for name in question} == question
    assert (listed["turn"], listed["session"]) == (turn["turn"], turn["session"])
    await answer(api, question, decision="approve")
    await followed(api, turn["turn"])
    assert (await api.get("agent/v1/agent/approvals")).json() == {"approvals": []}


async def test_a_yes_for_the_session_holds_in_it_until_it_is_taken_back(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "for good")
    await answer(api, question, decision="approve", remember="session")
    assert await result(api, turn) == ("success", "it ran")
    path = f"agent/v1/sessions/{turn['session']}/permissions"
    told = (await api.get(path)).json()
    assert [(grant["kind"], grant["tool"], grant["decision"]) for grant in told["grants"]] == [
        ("mcp", "probe_mcp", "approve")
    ]
    assert told["policy"]["mcp"] == {"permission": "ask", "because": "the defaults", "firm": False}
    free = await start_turn(api, "later", session=turn["session"])
    assert await result(api, free) == ("success", "it ran")
    assert (await api.delete(path, params={"kind": "web"})).json() == {"revoked": 0}
    assert (await api.delete(path)).json() == {"revoked": 1}
    exported = await api.get(f"agent/v1/sessions/{turn['session']}/export")
    assert "probe_mcp" in exported.text
    assert "grants" not in exported.text


async def test_a_body_as_mistral_rs_takes_it_is_understood(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "mistral")
    reply = await answer(api, question, decision="approve", remember_for_session=True, message="go")
    assert (reply.status_code, reply.json()["status"], reply.json()["remember"]) == (200, "resolved", "session")
    assert (await answer(api, question, decision="maybe")).status_code == 400
    await api.delete(f"agent/v1/sessions/{turn['session']}/permissions")


async def test_a_client_without_a_person_is_waited_for_so_long_and_no_longer(api: httpx.AsyncClient) -> None:
    turn, question = await start_and_wait_for_question(api, "silence", "mcp")
    [waiting] = (await api.get("agent/v1/agent/approvals")).json()["approvals"]
    assert question["until"] == pytest.approx(waiting["asked"] + 5.0, abs=0.01)
    assert await result(api, turn) == ("denied", "This call did not run: denied: nobody answered within 5 s.")
    late = await answer(api, question, decision="approve")
    assert (late.status_code, "nobody answered" in late.json()["error"]["message"]) == (409, True)


async def test_a_kernel_answers_for_one_call_and_takes_back_what_was_allowed_but_nothing_that_was_denied(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server([*words("one", "two", **MCP)], traits={"tools": "recall"}, extensions=EXTENSIONS)
    token = await server.kernel_token(await server.start_kernel("a.ipynb"))
    async with server.client() as user, server.kernel_client(token) as kernel:
        turn, question = await start_and_wait_for_question(kernel, "one")
        assert [entry["approval"] for entry in (await kernel.get("agent/v1/agent/approvals")).json()["approvals"]] == [
            question["approval"]
        ]
        refused = await answer(kernel, question, decision="approve", remember="session")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        refused = await answer(kernel, question, decision="approve", edited="other()")
        assert (refused.status_code, "cannot edit" in refused.json()["error"]["message"]) == (403, True)
        assert (await answer(kernel, question, decision="approve")).status_code == 200
        assert await result(kernel, turn) == ("success", "it ran")
        mine = await user.post("agent/v1/turns", json={"prompt": "two", "answers": ["*"], "session": turn["session"]})
        second = (await wait_for_event(user, mine.json()["turn"], WAITS))["data"]
        assert (await kernel.get("agent/v1/agent/approvals")).json() == {"approvals": []}
        assert (await answer(kernel, second, decision="approve")).status_code == 404
        await answer(user, second, decision="deny", remember="never")
        path = f"agent/v1/sessions/{turn['session']}/permissions"
        assert (await kernel.delete(path)).json() == {"revoked": 0}
        assert [grant["decision"] for grant in (await kernel.get(path)).json()["grants"]] == ["deny"]


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_what_waited_when_the_server_ended_is_told_and_what_was_granted_stays(
    agent_server: ServerFactory, end: str
) -> None:
    script = [*words("first", "second", **MCP), *words("third", **LIVE)]
    server = await agent_server(script, traits={"tools": "recall"}, extensions=EXTENSIONS)
    async with server.client() as client:
        turn, question = await start_and_wait_for_question(client, "first")
        await answer(client, question, decision="approve", remember="session")
        await followed(client, turn["turn"])
        waiting, open_question = await start_and_wait_for_question(client, "third", session=turn["session"])
    await (server.stop() if end == "stopped" else server.kill())
    await server.start()
    async with server.client() as client:
        found = (await client.get(f"agent/v1/turns/{waiting['turn']}")).json()
        assert (found["state"], found["running"]) == ("interrupted", False)
        items = (await client.get(f"agent/v1/sessions/{turn['session']}/items")).json()["items"]
        assert items[-1]["message"]["content"] == "not run: the server stopped while this waited for an answer"
        late = await answer(client, open_question, decision="approve")
        assert (late.status_code, late.json()["error"]["details"]) == (409, {"outcome": "interrupted"})
        assert (await answer(client, question, decision="approve", remember="session")).status_code == 200
        assert (await answer(client, question, decision="deny")).status_code == 409
        free = await start_turn(client, "second", session=turn["session"])
        assert await result(client, free) == ("success", "it ran")


async def test_a_person_who_left_answers_later(agent_server: ServerFactory) -> None:
    server = await agent_server(
        [*words("wait", **MCP)], traits={"tools": "recall", "approval_timeout_s": 0.3}, extensions=EXTENSIONS
    )
    async with server.client() as client:
        turn, question = await start_and_wait_for_question(client, "wait")
    await asyncio.sleep(0.8)
    async with server.client() as client:
        [listed] = (await client.get("agent/v1/agent/approvals")).json()["approvals"]
        assert listed["until"] is None
        await answer(client, listed, decision="approve", shown=question["shown"])
        assert await result(client, turn) == ("success", "it ran")
