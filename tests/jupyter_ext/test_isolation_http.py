"""Tests that no user sees another's data: two users of a server with an identity provider, and their programs."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httpx
import pytest

from agent_kernel.core.api_tokens import ApiTokenStore
from jupyter_ext.api.routes import name_of, routes
from tests.page import connect
from tests.server import AgentServer, Json, followed, start_turn, wait_for_event

ADA, BOB = "adalove17", "bobross23"
MARK = "zebrafish-of-ada"
SCRIPT: list[Json] = [
    {"text": "", "calls": [{"name": "python", "arguments": {"code": "1"}}], "when": "ask me"},
    {"text": f"I heard {MARK}.", "loop": True},
]
OF_A_KERNEL = {"binds/{id}", "binds/{id}/confirm"}
"""In test_auth.py, where there are kernels."""
OF_NOBODY = {"models/{id}", "unknown"}
CONNECTIONS = {"socket", "mcp"}


@dataclass(frozen=True)
class World:
    """A server with two users. ``paths`` has, for each route with an id, a path with one of Ada's ids."""

    server: AgentServer
    paths: Mapping[str, str]
    secrets: tuple[str, ...]
    tokens: Mapping[str, str]

    def client(self, who: str) -> httpx.AsyncClient:
        return self.server.client(self.tokens.get(who, f"user-{who}"))


def skill() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", f"---\nname: {MARK}\ndescription: {MARK}\n---\n{MARK}\n")
    return packed.getvalue()


async def _prepare(server: AgentServer) -> World:
    await server.start()
    tokens = ApiTokenStore(server.directory / "data" / "tokens")
    texts = {
        "a program with all of bob": tokens.new(["all"], user=BOB)[1],
        "a program with sessions of bob": tokens.new(["turns", "sessions", "files", "skills"], user=BOB)[1],
        "a program with turns of ada": tokens.new(["turns", "files", "skills"], user=ADA)[1],
        "a program of the server": tokens.new(["all"])[1],
    }
    async with server.client(f"user-{ADA}") as ada:
        turn = (await start_turn(ada, f"remember {MARK}", session=f"session {MARK}"))["turn"]
        await followed(ada, turn)
        asks = (await start_turn(ada, "ask me", session=f"asks {MARK}", answers=["*"], permission="ask"))["turn"]
        approval = (await wait_for_event(ada, asks, "approval.required"))["data"]["approval"]
        form = {"purpose": "user_data", "session": f"session {MARK}"}
        file = await ada.post("agent/v1/files", files={"file": (f"{MARK}.txt", MARK.encode())}, data=form)
        id = file.json()["id"]
        digest = (await ada.get(f"agent/v1/files/{id}/content")).headers["ETag"].strip('"')
        response = (await ada.post("agent/v1/responses", json={"input": f"say {MARK}"})).json()["id"]
        made = (await ada.post("agent/v1/skills", files={"files": (f"{MARK}.zip", skill())})).json()["id"]
    session, container = f"sessions/session {MARK}", f"containers/session {MARK}/files"
    conversation = f"conversations/session {MARK}"
    paths = {
        "turns/{id}": f"turns/{turn}",
        "turns/{id}/events": f"turns/{turn}/events",
        "turns/{id}/outputs": f"turns/{turn}/outputs",
        "turns/{id}/versions": f"turns/{turn}/versions",
        "agent/approvals/{id}": f"agent/approvals/{approval}",
        "responses/{id}": f"responses/{response}",
        "responses/{id}/input_items": f"responses/{response}/input_items",
        "conversations/{id}": conversation,
        "conversations/{id}/items": f"{conversation}/items",
        "conversations/{id}/items/{id}": f"{conversation}/items/msg_session {MARK}_0",
        "files/{id}": f"files/{id}",
        "files/{id}/content": f"files/{id}/content",
        "containers/{id}/files": container,
        "containers/{id}/files/{id}": f"{container}/{id}",
        "containers/{id}/files/{id}/content": f"{container}/{id}/content",
        "skills/{id}": f"skills/{made}",
        "skills/{id}/versions": f"skills/{made}/versions",
        "sessions/{id}": session,
        "sessions/{id}/blobs/{id}": f"{session}/blobs/{digest}",
        "sessions/{id}/variables/{id}": f"{session}/variables/x",
    }
    of_a_session = ["export", "turns", "meanwhile", "compact", "usage", "variables", "permissions", "items", "branches"]
    paths |= {f"sessions/{{id}}/{what}": f"{session}/{what}" for what in of_a_session}
    return World(server, paths, (MARK, ADA, turn, approval, id, digest, response, made), texts)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("isolation")
    options = ["--ServerApp.identity_provider_class=tests.jupyter_ext.probe_users.Users"]
    server = AgentServer(directory, SCRIPT, options=options, env={"PROBE_USERS_SEEN": str(directory / "seen")})
    server.login = f"user-{BOB}"
    with server:
        yield asyncio.run(_prepare(server))


def reads() -> dict[str, str]:
    """Return the routes that answer GET: name and pattern."""
    return {name_of(pattern): pattern for pattern, handler in routes() if "get" in vars(handler)}


OTHERS = [BOB, "a program with all of bob", "a program with sessions of bob", "a program with turns of ada"]
OTHERS += ["a program of the server"]
NARROW = ("a program with sessions of bob", "a program with turns of ada")
"""Some routes are not for their scopes."""


def test_every_route_with_an_id_is_looked_at(world: World) -> None:
    with_ids = {route for route in reads() if "{id}" in route}
    assert with_ids - OF_A_KERNEL - OF_NOBODY == set(world.paths)


async def test_whose_it_is_gets_it(world: World) -> None:
    async with world.client(ADA) as ada:
        replies = {route: await ada.get(f"agent/v1/{path}") for route, path in world.paths.items()}
    refused = {route: reply.status_code for route, reply in replies.items() if reply.status_code != 200}
    assert refused == {"sessions/{id}/variables/{id}": 404, "sessions/{id}/blobs/{id}": 404}  # there is neither


@pytest.mark.parametrize("other", OTHERS)
async def test_nobody_else_finds_anything_by_its_id(world: World, other: str) -> None:
    async with world.client(other) as client:
        for route, path in world.paths.items():
            reply = await client.get(f"agent/v1/{path}")
            assert reply.status_code in ((403, 404) if other in NARROW else (404,)), route
            named = [secret for secret in world.secrets if secret in reply.text and secret not in path]
            assert named == [], route


@pytest.mark.parametrize("other", OTHERS)
async def test_no_list_and_no_search_names_it_to_anybody_else(world: World, other: str) -> None:
    lists = [route for route in reads() if "{id}" not in route and route not in CONNECTIONS | OF_NOBODY]
    assert {"sessions", "search", "files", "skills", "agent/approvals", "metrics"} <= set(lists)
    queries = [
        f"search?q={MARK}",
        f"search?q={MARK}&role=user",
        f"sessions?name={MARK}",
        f"files?session=session {MARK}",
    ]
    async with world.client(other) as client:
        for path in [*lists, *queries]:
            reply = await client.get(f"agent/v1/{path}")
            named = [secret for secret in world.secrets if secret in reply.text and secret not in path]
            assert named == ([ADA] if (path, other) == ("usage", NARROW[1]) else []), path


async def test_no_request_takes_up_what_is_anothers(world: World) -> None:
    file, response = world.secrets[4], world.secrets[6]
    bodies: list[tuple[str, Json, int]] = [
        ("turns", {"prompt": "hi", "inputs": [file]}, 404),
        ("responses", {"input": "hi", "previous_response_id": response}, 400),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": file}]}]}, 404),
    ]
    async with world.client(BOB) as bob:
        for path, body, status in bodies:
            reply = await bob.post(f"agent/v1/{path}", json=body)
            assert (reply.status_code, MARK in reply.text) == (status, False), reply.text


async def test_the_same_name_is_a_conversation_of_each(world: World) -> None:
    path = f"agent/v1/sessions/session {MARK}"
    async with world.client(ADA) as ada, world.client(BOB) as bob:
        before = (await ada.get(f"{path}/items")).json()["items"]
        assert (await bob.get(path)).status_code == 404
        await followed(bob, (await start_turn(bob, "mine", session=f"session {MARK}"))["turn"])
        assert len((await bob.get(f"{path}/items")).json()["items"]) == 2
        assert (await bob.delete(path)).json()["deleted"]
        assert (await ada.get(f"{path}/items")).json()["items"] == before


async def test_a_live_connection_hears_nothing_of_others(world: World) -> None:
    page = await connect(world.server, {"Authorization": f"token user-{BOB}"})
    await page.ask("follow", turn=world.secrets[2])
    assert (await page.hear() or {})["type"] == "unknown.turn"
    await page.ask("watch", session=f"session {MARK}")
    async with world.client(ADA) as ada:
        await followed(ada, (await start_turn(ada, "again", session=f"session {MARK}"))["turn"])
    await page.ask("ping")
    await page.until("pong")
    assert [said for said in page.said if "turn" in said and said["type"] != "unknown.turn"] == []
    page.socket.close()


async def test_a_lasting_token_is_shown_to_no_identity_provider(world: World) -> None:
    async with world.client("a program with all of bob") as client:
        assert (await client.get("agent/v1/health")).status_code == 200
    async with world.server.client(None, {"x-api-key": world.tokens["a program of the server"]}) as client:
        assert (await client.get("agent/v1/health")).status_code == 200
    seen = (world.server.directory / "seen").read_text()
    assert f"token user-{ADA}" in seen
    assert "ak_" not in seen


async def test_no_user_is_named_like_a_place_of_a_token(world: World) -> None:
    async with world.server.client(f"user-{ADA}/tokens/app") as client:
        assert (await client.get("agent/v1/sessions")).status_code == 403
