"""Tests two real servers on one PostgreSQL or Redis: either one continues a conversation; a turn of one can be
followed, answered and stopped through the other; nobody sees the URL of the database. ``pytest -s`` prints the times.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from agent_kernel.core.session import LEASE_S
from agent_kernel.sessions.store.shared_tokens import open_token_store
from tests.jupyter_ext.conftest import HELLO
from tests.server import AgentServer, Json, follow, followed, start_turn, text_of, wait_for_event
from tests.sessions.log.servers import Postgres, Redis
from tests.waiting import until

pytestmark = pytest.mark.stores
ASKS = {"calls": [{"name": "probe_mcp", "arguments": {}}], "when": "ask"}
SCRIPT = [
    {"text": "word " * 3000, "deltas": 3000, "delay": 0.02, "when": "long", "loop": True},
    {"text": "word " * 80, "deltas": 80, "delay": 0.02, "when": "short", "loop": True},
    {"text": "word " * 80, "deltas": 80, "delay": 0.02, "when": "gated", "gate": "go"},
    *[entry for _ in range(3) for entry in (ASKS, {"text": "Done.", "when": "ask"})],
    {"calls": [{"name": "python", "arguments": {"code": "1 + 1"}}], "when": "client"},
    {"text": "Done.", "when": "client"},
    {"calls": [{"name": "read_skill", "arguments": {"skill": "Charts"}}], "when": "skill"},
    {"text": "Done.", "when": "skill"},
    HELLO,
]
SECRET = "pass-word-of-ann"
NOWHERE = "http://127.0.0.1:9/v1"
Pair = tuple[AgentServer, AgentServer]


@pytest.fixture(scope="module", params=["postgresql", "redis, encrypted"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    kept: Postgres | Redis = request.getfixturevalue("postgres" if request.param == "postgresql" else "redis_server")
    store = kept.fresh().replace("postgres:@", f"postgres:{SECRET}@")
    if "encrypted" in request.param:
        key = tmp_path_factory.mktemp("key") / "key"
        key.write_text(base64.b64encode(bytes(range(32))).decode())
        store += f"#key={key}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    directory = tmp_path_factory.mktemp("servers")
    made = [
        AgentServer(
            directory / name,
            SCRIPT,
            {"engines": {"near": {"url": NOWHERE, "model": "m"}}},
            extensions=["tests.jupyter_ext.probe_tools"],
            env={
                "AGENT_KERNEL_STORE": store,
                "AGENT_KERNEL_USER_TOKENS_PER_DAY": "1000000",
                "AGENT_KERNEL_USER_REQUESTS_PER_MINUTE": "1000",
                "AGENT_KERNEL_USER_TURNS_AT_ONCE": "500",
                "AGENT_KERNEL_TOKEN_SHARE": "0.004",
                "XDG_RUNTIME_DIR": runtime,
            },
        )
        for name in ("one", "two")
    ]

    async def start() -> None:
        await asyncio.gather(*(server.start() for server in made))

    try:
        asyncio.run(start())
        yield made[0], made[1]
    finally:
        for server in made:
            server.sweep()


@pytest.fixture
async def clients(servers: Pair) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    async with servers[0].client() as one, servers[1].client() as two:
        yield one, two


Clients = tuple[httpx.AsyncClient, httpx.AsyncClient]


async def test_a_conversation_goes_on_at_another_server(clients: Clients) -> None:
    for number, client in enumerate(clients):
        turn = await start_turn(client, f"Question {number}", session="shared")
        assert (await followed(client, turn["turn"]))[-1]["type"] == "turn.finished"
    for client in clients:
        shown = (await client.get("agent/v1/sessions/shared/items")).text
        assert "Question 0" in shown
        assert "Question 1" in shown


@pytest.mark.parametrize("servers", ["postgresql"], indirect=True)
async def test_kernels_and_logs_do_not_have_the_url_of_the_database(servers: Pair) -> None:
    server = servers[0]
    given = await server.kernel_environment(await server.start_kernel())
    assert "AGENT_KERNEL_STORE" not in given
    assert SECRET not in str(given)
    assert SECRET not in server.log.read_text()
    assert "sessions in postgresql:" in server.log.read_text()


async def test_a_turn_is_followed_live_through_the_other_server_under_the_same_numbers(
    servers: Pair, clients: Clients
) -> None:
    one, two = clients
    turn = (await start_turn(one, "gated", session="followed"))["turn"]
    events, there = follow(two, turn), list[Json]()
    while text_of(there) != "word " * 40:  # the rest comes only when this much has come
        there.append(await asyncio.wait_for(anext(events), 60))
    (servers[0].directory / "go").touch()
    there += [event async for event in events]
    here = await followed(one, turn)
    assert [event["seq"] for event in there] == sorted({event["seq"] for event in there})
    assert text_of(there) == text_of(here) == "word " * 80
    assert there[-1] == here[-1]
    for after in (3, 20, here[-1]["seq"] - 1):
        assert await followed(two, turn, after) == await followed(one, turn, after)
    state = (await two.get(f"agent/v1/turns/{turn}")).json()
    assert state == (await one.get(f"agent/v1/turns/{turn}")).json()


async def test_a_turn_is_stopped_through_the_other_server_at_once(clients: Clients) -> None:
    one, two = clients
    turn = (await start_turn(one, "long", session="stopped"))["turn"]
    await wait_for_event(two, turn, "text.delta")
    began = time.monotonic()
    reply = await two.post(f"agent/v1/turns/{turn}/cancel", json={"reason": "enough"})
    assert reply.json() == {"state": "cancelled"}
    for client in clients:
        end = (await followed(client, turn))[-1]
        assert (end["type"], end["data"]["state"], end["data"]["reason"]) == ("turn.finished", "cancelled", "enough")
    took = time.monotonic() - began
    print(f"stopped and shown at both servers after {took:.3f} s")
    assert took < 30


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_question_is_answered_through_the_other_server_once(clients: Clients, decision: str) -> None:
    one, two = clients
    turn = (await start_turn(one, "ask", session=decision, answers=["*"]))["turn"]
    question = (await wait_for_event(two, turn, "approval.required"))["data"]
    path = f"agent/v1/agent/approvals/{question['approval']}"
    wrong = await two.post(path, json={"decision": decision, "shown": "0" * 64})
    assert wrong.status_code == 409, "it is for another call"
    reply = await two.post(path, json={"decision": decision, "shown": question["shown"]})
    assert (reply.status_code, reply.json()["decision"]) == (200, decision)
    events = await followed(two, turn)
    [resolved] = [event["data"] for event in events if event["type"] == "approval.resolved"]
    assert resolved["decision"] == decision
    other = "deny" if decision == "approve" else "approve"
    for client in clients:
        assert (await client.post(path, json={"decision": decision})).status_code == 200
        assert (await client.post(path, json={"decision": other})).status_code == 409


async def test_an_unknown_turn_is_not_found_at_any_server(clients: Clients) -> None:
    _, two = clients
    assert (await two.get("agent/v1/turns/turn_none")).status_code == 404
    assert (await two.get("agent/v1/turns/turn_none/events")).status_code == 404


async def test_a_turn_of_a_private_session_is_not_shared(clients: Clients) -> None:
    one, two = clients
    turn = (await start_turn(one, "long", session="private:mine"))["turn"]
    await wait_for_event(one, turn, "text.delta")
    assert (await two.get(f"agent/v1/turns/{turn}/events")).status_code == 404
    assert (await two.post(f"agent/v1/turns/{turn}/cancel", json={})).status_code == 404
    assert (await one.post(f"agent/v1/turns/{turn}/cancel", json={})).json() == {"state": "cancelled"}


async def test_a_client_of_the_other_server_claims_a_call_and_brings_its_result(clients: Clients) -> None:
    one, two = clients
    asked = {"client_tools": ["python"], "answers": ["python.live"]}
    turn = (await start_turn(one, "client", session="claimed", **asked))["turn"]
    question = (await wait_for_event(two, turn, "approval.required"))["data"]["approval"]
    await two.post(f"agent/v1/agent/approvals/{question}", json={"decision": "approve", "edited": "1 + 2"})
    call = (await wait_for_event(two, turn, "call.offered"))["data"]["call"]
    claims = f"agent/v1/turns/{turn}/claims"
    claim = (await two.post(claims, json={"call": call, "client": "test"})).json()
    assert (claim["name"], claim["arguments"]) == ("python", {"code": "1 + 2"})
    assert (await one.post(claims, json={"call": call, "client": "late"})).status_code == 409
    token = {"token": claim["token"]}
    said = {"action": "output", "stream": "stdout", "text": "counting\n", **token}
    assert (await two.post(f"{claims}/{call}", json=said)).json() == {}
    assert (await two.post(f"{claims}/{call}", json={"action": "renew", **token})).json() == {}
    assert (await two.post(f"{claims}/{call}", json={"action": "renew", "token": "wrong"})).status_code == 409
    media = [{"mime": "image/png", "data": base64.b64encode(b"picture").decode()}]
    done = {"action": "finish", "status": "success", "text": "2", "media": media, "shown": True, **token}
    assert (await two.post(f"{claims}/{call}", json=done)).json() == {}
    events = await followed(two, turn)
    assert [event["data"]["text"] for event in events if event["type"] == "call.output"] == ["counting\n"]
    [end] = [event["data"] for event in events if event["type"] == "call.finished"]
    assert end["text"].startswith("The person changed your text")
    assert end["media"][0]["size"] == len(b"picture")


async def test_a_request_that_is_repeated_at_the_other_server_gets_the_turn_of_the_first(clients: Clients) -> None:
    one, two = clients
    key = {"Idempotency-Key": "once"}
    body = {"prompt": "short", "session": "repeated"}
    first = await one.post("agent/v1/turns", json=body, headers=key)
    again = await two.post("agent/v1/turns", json=body, headers=key)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == first.json()
    turn = first.json()["turn"]
    assert await followed(two, turn) == await followed(one, turn)
    late = await two.post("agent/v1/turns", json=body, headers=key)
    assert late.json() == first.json()
    other = await two.post("agent/v1/turns", json={**body, "prompt": "hello"}, headers=key)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "key_reused")
    [listed] = (await two.get("agent/v1/sessions/repeated/turns")).json()["turns"]
    assert listed["turn"] == turn


async def test_a_streamed_answer_that_is_requested_again_at_the_other_server_is_the_same(clients: Clients) -> None:
    body = {"model": "default", "messages": [{"role": "user", "content": "short"}], "stream": True}
    body["session_id"] = "streamed"

    async def read(client: httpx.AsyncClient) -> str:
        headers = {"Idempotency-Key": "streamed"}
        reply = await client.post("agent/v1/chat/completions", json=body, headers=headers)
        assert reply.status_code == 200, reply.text
        chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

    assert await asyncio.gather(*map(read, clients)) == ["word " * 80] * 2
    [turn] = (await clients[0].get("agent/v1/sessions/streamed/turns")).json()["turns"]
    assert turn["state"] == "committed"


async def test_no_event_is_lost_repeated_or_renumbered_when_followers_lose_their_connections(
    clients: Clients,
) -> None:
    """20 turns, half of them on each server; each is followed through both, with connections that break at random."""
    draw = random.Random(7)

    async def read(turn: str, seed: int) -> list[Json]:
        mine, got = random.Random(seed), list[Json]()
        while not got or got[-1]["type"] != "turn.finished":
            client = mine.choice(clients)
            left = mine.randint(1, 15)
            async with contextlib.aclosing(follow(client, turn, got[-1]["seq"] if got else 0)) as events:  # type: ignore[type-var]
                async for event in events:
                    got.append(event)
                    left -= 1
                    if not left:
                        break
        return got

    turns = [(await start_turn(clients[number % 2], "short", session=f"many-{number}"))["turn"] for number in range(20)]
    read_events = await asyncio.gather(*(read(turn, draw.randrange(1 << 30)) for turn in turns))
    for number, (turn, got) in enumerate(zip(turns, read_events, strict=True)):
        numbers = [event["seq"] for event in got]
        assert numbers == sorted(set(numbers))
        assert text_of(got) == "word " * 80
        whole = {event["seq"]: event for event in await followed(clients[number % 2], turn)}
        assert got[-1] == whole[numbers[-1]]
        assert got[0] == whole[1]


@pytest.mark.parametrize("servers", ["redis, encrypted"], indirect=True)
async def test_no_word_of_a_turn_is_readable_in_an_encrypted_database(
    request: pytest.FixtureRequest, clients: Clients
) -> None:
    one, two = clients
    turn = (await start_turn(one, "short", session="secret"))["turn"]
    assert text_of(await followed(two, turn)) == "word " * 80
    with request.getfixturevalue("redis_server").client() as database:
        messages, questions = (
            [fields[b"b"] for key in database.keys(f"*:topic:{name}") for _, fields in database.xrange(key)]
            for name in (f"*:events/{turn}", "0::questions")
        )
    assert len(messages) > 15
    assert questions
    assert not any(b"word" in body or b"turn" in body for body in [*messages, *questions])


async def test_a_lasting_token_is_valid_and_revoked_at_both_servers(servers: Pair) -> None:
    store = str(servers[0].env["AGENT_KERNEL_STORE"])
    with contextlib.closing(open_token_store(servers[0].directory / "data" / "tokens", store)) as tokens:
        token, text = tokens.new(["turns"], name="app")
        body = {"prompt": "hello"}
        for server in servers:
            async with server.client(text) as client:
                assert (await client.post("agent/v1/turns", json=body)).status_code == 202
        tokens.revoke(token.id)
        for server in servers:
            async with server.client(text) as client:
                assert (await client.post("agent/v1/turns", json=body)).status_code == 401


async def test_tokens_spent_on_one_server_count_on_the_other(clients: Clients) -> None:
    async def spent(client: httpx.AsyncClient) -> int:
        return int((await client.get("agent/v1/usage")).json()["tokens_per_day"]["used"])

    before = await spent(clients[1])
    turn = await start_turn(clients[0], "hello", session="spends")
    await followed(clients[0], turn["turn"])
    assert await spent(clients[0]) == await spent(clients[1]) > before


async def test_a_response_is_continued_fetched_and_deleted_through_the_other_server(clients: Clients) -> None:
    one, two = clients
    first = (await one.post("agent/v1/responses", json={"model": "default", "input": "hello"})).json()
    assert (first["status"], first["output_text"]) == ("completed", "Hello.")
    path = f"agent/v1/responses/{first['id']}"
    assert (await two.get(path)).json() == first
    [asked] = (await two.get(f"{path}/input_items")).json()["data"]
    assert asked["content"][0]["text"] == "hello"
    body = {"model": "default", "input": "and then?", "previous_response_id": first["id"]}
    second = (await two.post("agent/v1/responses", json=body)).json()
    assert (second.get("error"), second["session_id"]) == (None, first["session_id"])
    shown = (await one.get(f"agent/v1/sessions/{first['session_id']}/items")).text
    assert "hello" in shown
    assert "and then?" in shown
    streams = [(await client.get(path, params={"stream": "true"})).text for client in clients]
    assert streams[0] == streams[1]
    assert "response.completed" in streams[0]
    assert (await two.delete(path)).json()["deleted"] is True
    assert [(await client.get(path)).status_code for client in clients] == [404, 404]
    refused = await one.post("agent/v1/responses", json=body)
    assert refused.json()["error"]["code"] == "previous_response_not_found"
    assert (await one.get(f"agent/v1/responses/{second['id']}")).status_code == 200


async def test_a_response_that_runs_is_seen_and_cancelled_through_the_other_server(clients: Clients) -> None:
    one, two = clients
    body = {"model": "default", "input": "long", "background": True}
    path = f"agent/v1/responses/{(await one.post('agent/v1/responses', json=body)).json()['id']}"
    assert (await two.get(path)).json()["status"] in ("queued", "in_progress")
    began = time.monotonic()
    cancelled = (await two.post(f"{path}/cancel")).json()
    print(f"cancelled through the other server after {time.monotonic() - began:.3f} s")
    assert cancelled["status"] == "cancelled"
    assert (await one.get(path)).json()["status"] == (await two.get(path)).json()["status"] == "cancelled"
    again = (await one.post("agent/v1/responses", json=body)).json()
    assert (await two.delete(f"agent/v1/responses/{again['id']}")).json()["deleted"] is True
    for client in clients:
        assert (await client.get(f"agent/v1/responses/{again['id']}")).status_code == 404


async def test_a_response_of_one_user_does_not_exist_for_another_at_any_server(servers: Pair) -> None:
    store = str(servers[0].env["AGENT_KERNEL_STORE"])
    with contextlib.closing(open_token_store(servers[0].directory / "data" / "tokens", store)) as tokens:
        texts = [tokens.new(["turns", "sessions"], name=name, user=name)[1] for name in ("ann", "bob")]
    body = {"model": "default", "input": "hello"}
    async with servers[0].client(texts[0]) as ann, servers[1].client(texts[1]) as bob:
        made = (await ann.post("agent/v1/responses", json=body)).json()
        path = f"agent/v1/responses/{made['id']}"
        assert (await bob.get(path)).status_code == (await bob.delete(path)).status_code == 404
        taken = await bob.post("agent/v1/responses", json={**body, "previous_response_id": made["id"]})
        assert taken.json()["error"]["code"] == "previous_response_not_found"
        assert (await ann.get(path)).json()["status"] == "completed"


async def test_an_engine_that_a_person_chooses_is_that_of_the_session_at_both_servers(clients: Clients) -> None:
    one, two = clients
    await followed(one, (await start_turn(one, "hello", session="chooses"))["turn"])

    async def current(client: httpx.AsyncClient) -> Json:
        current: Json = (await client.get("agent/v1/models", params={"session": "chooses"})).json()["current"]
        return current

    assert (await two.put("agent/v1/engine", json={"session": "chooses", "model": "near"})).status_code == 200
    assert [(await current(client))["name"] for client in clients] == ["near", "near"]
    await two.put("agent/v1/engine", json={"session": "chooses", "model": f"{NOWHERE}#mine"})
    assert (await current(two))["name"] == f"{NOWHERE}#mine"
    assert "known only on the server where it was chosen" in (await current(one))["problem"]
    await one.put("agent/v1/engine", json={"session": "chooses", "model": ""})
    assert [(await current(client))["name"] for client in clients] == ["", ""]


def new_token(servers: Pair) -> str:
    """A token with a share of the limits of the user."""
    store = str(servers[0].env["AGENT_KERNEL_STORE"])
    with contextlib.closing(open_token_store(servers[0].directory / "data" / "tokens", store)) as tokens:
        return tokens.new(["turns"], name="limited")[1]


async def test_a_limit_of_turns_at_once_is_that_of_both_servers_together(servers: Pair) -> None:
    text, body = new_token(servers), {"prompt": "long"}
    async with servers[0].client(text) as one, servers[1].client(text) as two:
        turns = [(await start_turn(client, "long"))["turn"] for client in (one, two)]
        for client in (one, two):  # the limit of a token is two turns at once here
            refused = await client.post("agent/v1/turns", json=body)
            details = refused.json()["error"]["details"]
            assert (refused.status_code, details["limit"], details["used"]) == (429, "user_turns_at_once", 2)
            assert (await client.get("agent/v1/usage")).json()["token"]["turns_at_once"]["used"] == 2
        await one.post(f"agent/v1/turns/{turns[0]}/cancel", json={})
        end = time.monotonic() + 20
        while (started := await two.post("agent/v1/turns", json=body)).status_code != 202:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        for turn in (turns[1], started.json()["turn"]):
            await two.post(f"agent/v1/turns/{turn}/cancel", json={})


async def test_a_limit_of_turns_in_a_minute_is_that_of_both_servers_together(servers: Pair, clients: Clients) -> None:
    text, body = new_token(servers), {"prompt": "hello"}
    async with servers[0].client(text) as one, servers[1].client(text) as two:
        for client in (one, two, one, two):  # the limit of a token is four turns here
            assert (await followed(client, (await start_turn(client, "hello"))["turn"]))[-1]["type"] == "turn.finished"
        for client in (one, two, one):
            refused = await client.post("agent/v1/turns", json=body)
            assert (refused.status_code, refused.json()["error"]["details"]["used"]) == (429, 4)
    used = [(await client.get("agent/v1/usage")).json()["requests_per_minute"]["used"] for client in clients]
    assert used[0] == used[1] >= 2


async def test_a_skill_that_one_server_got_is_read_in_a_turn_of_the_other(clients: Clients) -> None:
    one, two = clients
    files = [("files[]", ("SKILL.md", f"---\nname: Charts\ndescription: Draws\n---\n{SECRET} is not here"))]
    made = (await one.post("agent/v1/skills", files=files)).json()
    assert [skill["id"] for skill in (await two.get("agent/v1/skills")).json()["data"]] == [made["id"]]
    turn = await start_turn(two, "skill", skills=["charts"])
    finished = [event["data"] for event in await followed(two, turn["turn"]) if event["type"] == "call.finished"]
    assert "is not here" in finished[0]["text"]
    assert (await two.delete(f"agent/v1/skills/{made['id']}")).json()["deleted"] is True
    assert (await one.get("agent/v1/skills")).json()["data"] == []


async def test_a_server_that_is_stopped_leaves_the_turns_of_others_running_and_follows_them_again(
    servers: Pair, clients: Clients
) -> None:
    one, two = clients
    turn = (await start_turn(one, "long", session="stays"))["turn"]
    got: list[Json] = []

    async def read() -> None:
        async for event in follow(two, turn, got[-1]["seq"] if got else 0):
            got.append(event)

    reading = asyncio.create_task(read())
    await until(lambda: len(got) >= 10)
    assert await servers[1].stop() == 0
    with contextlib.suppress(httpx.TransportError):
        await reading
    await servers[1].start(servers[1].port)
    reading = asyncio.create_task(read())
    await asyncio.sleep(0.5)
    await one.post(f"agent/v1/turns/{turn}/cancel", json={})
    await reading
    whole = {event["seq"]: event for event in await followed(one, turn)}
    assert [event["seq"] for event in got] == sorted({event["seq"] for event in got})
    assert text_of(got) == text_of([*whole.values()])
    assert got[-1] == whole[got[-1]["seq"]]


async def test_the_turn_of_a_killed_server_is_interrupted_and_its_session_goes_on_at_the_other(
    servers: Pair, clients: Clients
) -> None:
    one, two = clients
    body = {"model": "default", "input": "long", "background": True}
    response = f"agent/v1/responses/{(await one.post('agent/v1/responses', json=body)).json()['id']}"
    turn = (await start_turn(one, "long", session="killed"))["turn"]
    got: list[Json] = []

    async def read() -> None:
        async for event in follow(two, turn):
            got.append(event)

    reading = asyncio.create_task(read())
    await until(lambda: len(got) >= 20)
    await servers[0].kill()
    killed = time.monotonic()
    await asyncio.wait_for(reading, LEASE_S)
    took = time.monotonic() - killed
    print(f"the killed server's turn was interrupted after {took:.1f} s")
    assert took < LEASE_S, "nobody waited for the lease of its turn"
    assert got[-1]["data"]["state"] == "interrupted"
    assert [event["seq"] for event in got[:-1]] == [*range(1, len(got))]
    assert got[-1]["seq"] >= len(got)
    assert await followed(two, turn, got[9]["seq"]) == got[10:]
    following = await start_turn(two, "hello", session="killed")
    assert (await followed(two, following["turn"]))[-1]["data"]["state"] == "committed"
    assert (await two.get(response)).json()["status"] == "failed"
