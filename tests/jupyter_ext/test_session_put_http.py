"""Tests PUT, GET and DELETE of sessions as mistral.rs's clients use them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from tests.server import KERNEL_HEADER, AgentServer, followed, start_turn, wait_for_event

Json = dict[str, Any]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TAGGED: Json = {
    "messages": [
        {"role": {"Left": "user"}, "content": {"Left": "how many?"}},
        {
            "role": {"Left": "assistant"},
            "content": {"Left": ""},
            "tool_calls": {
                "Right": [{"id": "call-1", "type": "function", "function": {"name": "count", "arguments": {"of": "x"}}}]
            },
        },
        {"role": {"Left": "tool"}, "name": {"Left": "count"}, "content": {"Left": "3"}},
        {"role": {"Left": "assistant"}, "content": {"Left": "three"}},
    ],
    "images": [],
    "videos": [],
    "files": [],
}
PLAIN: Json = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}


SCRIPT: list[Json] = [
    {"text": "slow " * 30, "deltas": 30, "delay": 0.1, "when": "slow"},
    {"text": "ok", "loop": True},
]


@pytest.fixture(autouse=True)
async def emptied(server: AgentServer) -> None:
    async with server.client() as client:
        for session in "abs":
            await client.delete(f"agent/v1/sessions/{session}")


async def texts_of(client: httpx.AsyncClient, session: str) -> list[str]:
    items = (await client.get(f"agent/v1/sessions/{session}/items")).json()["items"]
    return [item["message"]["content"] for item in items]


async def test_put_makes_a_session_and_replaces_it_as_a_whole(api: httpx.AsyncClient) -> None:
    made = await api.put("agent/v1/sessions/s", json=TAGGED)
    assert made.status_code == 200
    assert await texts_of(api, "s") == ["how many?", "", "3", "three"]
    replaced = await api.put("agent/v1/sessions/s", json=PLAIN)
    assert await texts_of(api, "s") == ["hi", "hello"]
    assert replaced.json()["turns"] == 1
    assert replaced.json()["revision"] > made.json()["revision"]
    assert replaced.headers["ETag"] != made.headers["ETag"]


async def test_what_get_gives_put_takes(api: httpx.AsyncClient) -> None:
    with_image = {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "see"}]}]}
    await api.put("agent/v1/sessions/a", json={**with_image, "images": [PNG], "videos": [], "files": []})
    for format in ("mistralrs", "agent-kernel"):
        whole = await api.get("agent/v1/sessions/a", params={"format": format})
        assert whole.headers["Content-Type"].startswith("application/json")
        assert (await api.put("agent/v1/sessions/b", json=whole.json())).status_code == 200
        again = await api.get("agent/v1/sessions/b", params={"format": "mistralrs"})
        assert again.json()["images"] == [PNG]
        assert again.json()["messages"] == (await api.get("agent/v1/sessions/a?format=mistralrs")).json()["messages"]


async def test_what_get_gives_without_a_format_put_takes_without_loss(api: httpx.AsyncClient) -> None:
    calls = [
        {"id": id, "type": "function", "function": {"name": "weather", "arguments": {"city": city}}}
        for id, city in (("c1", "Rome"), ("c2", "Oslo"))
    ]
    video = {"fps": 1.5, "frames": [PNG, PNG], "total_num_frames": 60, "sampled_indices": [0, 30]}
    document = {
        "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "video"}, {"type": "text", "text": "both?"}]},
            {"role": "assistant", "content": "", "tool_calls": calls, "reasoning_content": "hm"},
            {"role": "tool", "name": "weather", "content": "Oslo: 5", "tool_call_id": "c2", "status": "error"},
            {"role": "tool", "name": "weather", "content": "Rome: 30", "tool_call_id": "c1"},
            {"role": "assistant", "content": "warm"},
        ],
        "images": [PNG],
        "videos": [video],
        "files": [{"id": "file_ab12_r0_1", "name": "a.txt", "bytes": 2, "created_at": 5, "source": {}, "text": "hi"}],
    }
    await api.put("agent/v1/sessions/a", json=document)
    await api.patch("agent/v1/sessions/a", json={"title": "Rain", "tags": ["sea"], "metadata": {"k": [1]}})
    whole = await api.get("agent/v1/sessions/a")
    facts = await api.get("agent/v1/sessions/a?format=facts")
    history = {name: whole.json()[name] for name in ("messages", "images", "videos", "files")}
    assert whole.headers["Content-Type"] == facts.headers["Content-Type"]
    assert whole.headers["ETag"] == facts.headers["ETag"]
    assert whole.json() == facts.json() | history
    assert history == (await api.get("agent/v1/sessions/a?format=mistralrs")).json()
    assert [message["content"] for message in history["messages"][2:4]] == [
        {"Left": "Rome: 30"},
        {"Left": "Oslo: 5"},
    ]
    assert (history["images"], history["videos"]) == ([PNG], [video])
    for id in ("a", "b"):
        assert (await api.put(f"agent/v1/sessions/{id}", json=whole.json())).status_code == 200
        again = (await api.get(f"agent/v1/sessions/{id}")).json()
        assert {name: again[name] for name in history} == history
        assert (again["title"], again["tags"]) == ("Rain", ["sea"])
        assert again["metadata"] == ({"k": [1]} if id == "a" else {})
    assert (await api.put("agent/v1/sessions/a", json=facts.json())).status_code == 400
    assert (await api.get("agent/v1/sessions/a?format=facts")).json()["revision"] == (
        await api.get("agent/v1/sessions/a")
    ).json()["revision"]
    assert len(await texts_of(api, "a")) == 5
    assert (await api.get("agent/v1/sessions/a?format=pdf")).status_code == 400


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({**TAGGED, "images": ["no base64!"]}, 400),
        ({**TAGGED, "images": [base64.b64encode(b"no PNG").decode()]}, 400),
        ({"messages": "hi"}, 400),
        ({"nothing": 1}, 400),
        ([1, 2], 400),
    ],
)
async def test_what_can_not_be_read_changes_nothing(api: httpx.AsyncClient, document: Any, status: int) -> None:
    await api.put("agent/v1/sessions/s", json=PLAIN)
    reply = await api.put("agent/v1/sessions/s", json=document)
    assert reply.status_code == status, reply.text
    assert await texts_of(api, "s") == ["hi", "hello"]
    assert (await api.put("agent/v1/sessions/new", json=document)).status_code == status
    assert (await api.get("agent/v1/sessions/new")).status_code == 404


async def test_the_next_turn_goes_on_from_what_was_put(api: httpx.AsyncClient) -> None:
    await api.put("agent/v1/sessions/s", json=PLAIN)
    turn = await start_turn(api, "and now?", session="s")
    await followed(api, turn["turn"])
    assert await texts_of(api, "s") == ["hi", "hello", "and now?", "ok"]


async def test_a_session_is_not_replaced_under_a_turn_that_runs_nor_when_it_changed(api: httpx.AsyncClient) -> None:
    seen = (await api.put("agent/v1/sessions/s", json=PLAIN)).headers["ETag"]
    turn = await start_turn(api, "slow", session="s")
    assert (await api.put("agent/v1/sessions/s", json=PLAIN)).status_code == 409
    await wait_for_event(api, turn["turn"], "text.delta")
    assert (await api.put("agent/v1/sessions/s", json=PLAIN)).status_code == 409
    await api.post(f"agent/v1/turns/{turn['turn']}/cancel", json={})
    await followed(api, turn["turn"])
    late = await api.put("agent/v1/sessions/s", json=PLAIN, headers={"If-Match": seen})
    assert late.status_code == 409
    assert len(await texts_of(api, "s")) > 2


async def test_a_notebook_keeps_the_session_that_was_replaced(server: AgentServer, api: httpx.AsyncClient) -> None:
    await server.save_notebook("n.ipynb")
    made = (await api.post("agent/v1/sessions?path=n.ipynb", json={"id": "s"})).json()
    assert made["bound"]
    assert (await api.put("agent/v1/sessions/s", json=PLAIN)).json()["notebooks"] == ["n.ipynb"]
    assert (await api.get("agent/v1/binding?path=n.ipynb")).json()["session"]["id"] == "s"


async def test_delete_of_what_is_not_there_is_200(api: httpx.AsyncClient) -> None:
    replies = await asyncio.gather(*[api.delete("agent/v1/sessions/none") for _ in range(3)])
    assert [reply.status_code for reply in replies] == [200] * 3
    assert (await api.get("agent/v1/sessions/none")).status_code == 404
    assert (await api.get("agent/v1/sessions/none")).json()["error"]["code"] == "session_not_found"


async def test_a_refused_put_leaves_nothing(server: AgentServer) -> None:
    async with server.client() as client:
        private = await client.put("agent/v1/sessions/private:mine", json=PLAIN)
        assert (private.status_code, private.json()["error"]["code"]) == (400, "invalid_request")
    kernel = await server.start_kernel("refused.ipynb")
    headers = {KERNEL_HEADER: await server.kernel_token(kernel)}
    async with server.client() as client, server.client(None, headers) as of_kernel:
        assert (await of_kernel.put("agent/v1/sessions/taken", json={"no": "document"})).status_code == 400
        (await client.put("agent/v1/sessions/taken", json=PLAIN)).raise_for_status()
        assert (await of_kernel.get("agent/v1/sessions/taken")).status_code == 403
