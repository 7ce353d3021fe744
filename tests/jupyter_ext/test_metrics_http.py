"""Tests the metrics of a server, parsed as Prometheus does, against the requests that were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.server import KERNEL_HEADER, AgentServer, Json, followed, start_turn, wait_for_event

CODE = {"name": "python", "arguments": {"code": "1 + 1"}}
SCRIPT: list[Json] = [
    {"text": "", "calls": [CODE], "when": "tool"},
    {"text": "", "calls": [{"name": "no-such-tool-of-a-person", "arguments": {}}], "when": "unknown"},
    {"text": "", "calls": [{"name": "my_secret_function", "arguments": {}}], "when": "function"},
    {"text": "", "calls": [CODE], "when": "ask"},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "one two three", "deltas": 3, "delay": 0.01, "loop": True},
]
FUNCTION = {"type": "function", "function": {"name": "my_secret_function", "parameters": {"type": "object"}}}
Figures = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


async def figures(client: httpx.AsyncClient) -> Figures:
    answer = await client.get("agent/v1/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def of(found: Figures, name: str, **labels: str) -> float:
    """Return the sum over all labels that are not given."""
    wanted = set(labels.items())
    return sum(value for (one, has), value in found.items() if one == f"agent_kernel_{name}" and wanted <= has)


def grown(before: Figures, after: Figures, name: str, **labels: str) -> float:
    return of(after, name, **labels) - of(before, name, **labels)


async def chat(client: httpx.AsyncClient, prompt: str, **body: Any) -> httpx.Response:
    messages = [{"role": "user", "content": prompt}]
    return await client.post("agent/v1/chat/completions", json={"model": "default", "messages": messages, **body})


async def test_turns_are_counted_by_how_they_end_and_where_they_come_from(server: AgentServer) -> None:
    async with server.client() as client:
        before = await figures(client)
        await followed(client, (await start_turn(client, "hello"))["turn"])
        usage = (await chat(client, "hello")).json()["usage"]
        await chat(client, "hello")
        hanging = await start_turn(client, "hang")
        await wait_for_event(client, hanging["turn"], "text.delta")
        meanwhile = await figures(client)
        await client.post(f"agent/v1/turns/{hanging['turn']}/cancel", json={})
        after = await figures(client)
    assert grown(before, after, "turns_total", state="committed", route="turns") == 1
    assert grown(before, after, "turns_total", state="committed", route="chat/completions") == 2
    assert grown(before, after, "turns_total", state="cancelled") == 1
    assert (of(meanwhile, "turns_running"), of(after, "turns_running")) == (1, 0)
    assert grown(before, after, "turn_seconds_count") == grown(before, after, "turns_total") == 4
    assert grown(before, after, "turn_wait_seconds_count") == 4
    assert grown(before, after, "time_to_first_token_seconds_count") == 4
    assert (grown(before, after, "turn_rounds_sum"), grown(before, after, "turn_rounds_count")) == (0, 4)
    told = {kind: grown(before, after, "tokens_total", kind=kind) for kind in ("prompt", "completion")}
    assert told["prompt"] >= 2 * usage["prompt_tokens"] > 0
    assert told["completion"] >= 2 * usage["completion_tokens"] > 0
    assert grown(before, after, "inter_token_seconds_count") >= 2


async def test_a_turn_that_waits_is_counted_as_one_that_does(server: AgentServer) -> None:
    async with server.client() as client:
        before = await figures(client)
        first = await start_turn(client, "hang")
        await wait_for_event(client, first["turn"], "text.delta")
        second = await start_turn(client, "hello", session=first["session"])
        meanwhile = await figures(client)
        await client.post(f"agent/v1/turns/{first['turn']}/cancel", json={})
        await followed(client, second["turn"])
        after = await figures(client)
    assert (of(meanwhile, "turns_waiting"), of(after, "turns_waiting")) == (1, 0)
    assert grown(before, after, "turn_wait_seconds_sum") > 0


async def test_one_that_may_not_wait_is_a_refused_request(server: AgentServer) -> None:
    async with server.client() as client:
        before = await figures(client)
        first = await start_turn(client, "hang")
        await wait_for_event(client, first["turn"], "text.delta")
        assert (await chat(client, "hello", session_id=first["session"])).status_code == 409
        await client.post(f"agent/v1/turns/{first['turn']}/cancel", json={})
        after = await figures(client)
    assert grown(before, after, "http_requests_total", route="chat/completions", status="409") == 1
    assert grown(before, after, "turns_total", route="chat/completions") == 0


async def test_calls_are_counted_by_kind_and_outcome_and_names_of_others_are_nowhere(server: AgentServer) -> None:
    async with server.client() as client:
        before = await figures(client)
        await followed(client, (await start_turn(client, "tool"))["turn"])
        await followed(client, (await start_turn(client, "unknown"))["turn"])
        assert (await chat(client, "function", tools=[FUNCTION])).status_code == 200
        after = await figures(client)
        text = (await client.get("agent/v1/metrics")).text
    assert grown(before, after, "tool_calls_total", kind="python.sandbox", outcome="success") == 1
    assert grown(before, after, "tool_seconds_count", kind="python.sandbox") == 1
    assert grown(before, after, "turn_rounds_sum") == 2
    assert of(after, "sandbox_processes") >= 1
    assert grown(before, after, "tool_calls_total", kind="unknown", outcome="error") == 1
    assert grown(before, after, "tool_calls_total", kind="caller", outcome="returned") == 1
    assert "no-such-tool" not in text
    assert "my_secret_function" not in text


async def test_a_question_waits_and_its_answer_is_counted(server: AgentServer) -> None:
    async with server.client() as client:
        before = await figures(client)
        turn = await start_turn(client, "ask me", permission="ask", answers=["*"])
        asked = await wait_for_event(client, turn["turn"], "approval.required")
        meanwhile = await figures(client)
        path = f"agent/v1/agent/approvals/{asked['data']['approval']}"
        answer = await client.post(path, json={"decision": "deny", "shown": asked["data"]["shown"]})
        assert answer.status_code == 200, answer.text
        await followed(client, turn["turn"])
        after = await figures(client)
    assert (of(meanwhile, "approvals_waiting"), of(after, "approvals_waiting")) == (1, 0)
    assert grown(before, after, "approvals_total", decision="asked") == 1
    assert grown(before, after, "approvals_total", decision="deny") == 1
    assert grown(before, after, "tool_calls_total", kind="python.sandbox", outcome="denied") == 1


async def test_requests_and_streams_are_counted_by_route_without_what_varies(server: AgentServer) -> None:
    async with server.client() as client:
        before = await figures(client)
        turn = await start_turn(client, "hang")
        async with client.stream("GET", f"agent/v1/turns/{turn['turn']}/events") as stream:
            assert stream.status_code == 200
            chunks = stream.aiter_bytes()  # kept: the stream closes when nothing refers to its iterator
            await anext(chunks)
            meanwhile = await figures(client)
        await client.get("agent/v1/sessions/a-name-of-a-person")
        await client.post(f"agent/v1/turns/{turn['turn']}/cancel", json={})
        after = await figures(client)
        text = (await client.get("agent/v1/metrics")).text
    assert of(meanwhile, "streams_open") == 1
    assert grown(before, after, "http_requests_total", route="sessions/{id}", method="GET", status="404") == 1
    assert grown(before, after, "http_requests_total", route="turns", method="POST", status="202") == 1
    assert "a-name-of-a-person" not in text
    assert turn["turn"] not in text
    assert turn["session"] not in text


async def test_what_the_server_is_and_has_is_told_when_it_is_asked(server: AgentServer) -> None:
    async with server.client() as client:
        found = await figures(client)
    assert of(found, "build_info") == 1
    assert of(found, "engine_state", engine="own", state="ready") == 1
    assert of(found, "engine_state", engine="own") == 1
    assert of(found, "sandbox_layer") >= 1
    assert ("agent_kernel_stored_sessions", frozenset()) in found
    assert ("process_resident_memory_bytes", frozenset()) in found


async def test_openmetrics_is_spoken_where_it_is_asked_for(server: AgentServer) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with server.client() as client:
        answer = await client.get("agent/v1/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    parse: Any = openmetrics
    assert "agent_kernel_turns" in {family.name for family in parse(answer.text)}


async def test_the_figures_of_all_are_not_for_a_notebook(server: AgentServer) -> None:
    token = await server.kernel_token(await server.start_kernel())
    async with server.client(None, {KERNEL_HEADER: token}) as kernel, server.client(None) as nobody:
        assert (await kernel.get("agent/v1/metrics")).status_code == 403
        assert (await nobody.get("agent/v1/metrics")).status_code == 401
