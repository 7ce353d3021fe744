"""Tests branches, forks, undo and descriptions of sessions, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.server import AgentServer, Json, followed, start_turn


async def talk(client: httpx.AsyncClient, session: str, *prompts: str, **body: Any) -> list[str]:
    """Run turns to their end and return their ids."""
    turns = []
    for prompt in prompts:
        started = await start_turn(client, prompt, session=session, **body)
        await followed(client, started["turn"])
        turns.append(started["turn"])
    return turns


async def user_texts(client: httpx.AsyncClient, session: str, branch: str = "") -> list[str]:
    query = {"branch": branch} if branch else {}
    items = (await client.get(f"agent/v1/sessions/{session}/items", params=query)).json()["items"]
    return [item["message"]["content"] for item in items if item["message"]["role"] == "user"]


async def test_a_branch_is_made_listed_read_left_and_dropped(api: httpx.AsyncClient) -> None:
    _, second = await talk(api, "tree", "one", "two")
    path = "agent/v1/sessions/tree"
    made = await api.post(f"{path}/branches", json={"before": second, "name": "other way"})
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["parent"], made.json()["current"]) == ("other way", "main", True)
    await talk(api, "tree", "two, differently")
    assert await user_texts(api, "tree") == ["one", "two, differently"]
    assert await user_texts(api, "tree", "main") == ["one", "two"]
    assert (await api.get(f"{path}/items", params={"branch": "none"})).status_code == 404
    assert (await api.put(f"{path}/branch", json={"name": "main"})).json()["turns"] == 2
    assert await user_texts(api, "tree") == ["one", "two"]
    listed = (await api.get(f"{path}/branches")).json()["branches"]
    assert [(branch["name"], branch["current"]) for branch in listed] == [("main", True), ("other way", False)]
    assert (await api.delete(f"{path}/branches/main")).status_code == 409
    assert (await api.delete(f"{path}/branches/other%20way")).json() == {"name": "other way", "deleted": True}
    assert (await api.put(f"{path}/branch", json={"name": "other way"})).status_code == 404


async def test_versions_of_a_turn_are_told_with_the_branch_that_shows_each(api: httpx.AsyncClient) -> None:
    first, *_ = await talk(api, "versions", "one", cell="a", rerun="ask")
    started = await start_turn(api, "uno", session="versions", cell="a", rerun="ask")
    events = await followed(api, started["turn"])
    [told] = [event["data"] for event in events if event["type"] == "turn.version"]
    assert told["replaces"] == first
    assert (told["number"], told["count"], told["kept_on"], told["changed"]) == (2, 2, "main", True)
    answer = (await api.get(f"agent/v1/turns/{first}/versions")).json()
    assert [(version["turn"], version["branch"], version["current"]) for version in answer["versions"]] == [
        (first, "main", False),
        (started["turn"], told["branch"], True),
    ]


async def test_a_turn_without_a_cell_is_asked_again_in_its_place_with_all_that_it_was_asked(
    api: httpx.AsyncClient,
) -> None:
    [first] = await talk(api, "again", "one", context=[{"title": "Cell 3", "text": "x"}])
    second, _ = await talk(api, "again", "two", "three")
    body = {"prompt": "", "session": "again", "replaces": second}
    started = (await api.post("agent/v1/turns", json=body)).json()
    [told] = [e["data"] for e in await followed(api, started["turn"]) if e["type"] == "turn.version"]
    assert (told["replaces"], told["kept_on"], told["later"], told["changed"]) == (second, "main", 1, False)
    assert await user_texts(api, "again") == ["Cell 3: x", "one", "two"]
    edited = await start_turn(api, "zwei", session="again", replaces=started["turn"])
    [told] = [e["data"] for e in await followed(api, edited["turn"]) if e["type"] == "turn.version"]
    assert (told["number"], told["count"], told["changed"]) == (3, 3, True)
    versions = (await api.get(f"agent/v1/turns/{second}/versions")).json()["versions"]
    assert [version["turn"] for version in versions] == [second, started["turn"], edited["turn"]]
    assert [version["current"] for version in versions] == [False, False, True]
    for wrong in ("turn_there_is_none", ""):
        refused = await api.post("agent/v1/turns", json={**body, "replaces": wrong})
        assert refused.status_code == (404 if wrong else 400)
    begun = (await api.post("agent/v1/turns", json={**body, "replaces": first})).json()
    await followed(api, begun["turn"])
    assert await user_texts(api, "again") == ["Cell 3: x", "one"]


async def test_an_unchanged_cell_gets_its_stored_turn_and_no_new_one(api: httpx.AsyncClient) -> None:
    body: Json = {"prompt": "hello", "session": "kept", "cell": "a", "rerun": "show"}
    first = await api.post("agent/v1/turns", json=body)
    assert (first.status_code, first.json()["stored"]) == (202, False)
    await followed(api, first.json()["turn"])
    again = await api.post("agent/v1/turns", json=body)
    assert (again.status_code, again.json()["stored"]) == (200, True)
    assert again.json()["turn"] == first.json()["turn"]
    assert again.json()["version"]["count"] == 1
    other = await api.post("agent/v1/turns", json={**body, "sampling": {"seed": 1}})
    assert other.status_code == 202
    await followed(api, other.json()["turn"])
    assert (await api.get("agent/v1/sessions/kept")).json()["turns"] == 2


async def test_two_windows_that_run_one_cell_at_once_make_two_versions(api: httpx.AsyncClient) -> None:
    await talk(api, "twice", "one", "two", cell="a")
    body: Json = {"session": "twice", "cell": "a", "rerun": "ask"}
    first, second = await asyncio.gather(*(start_turn(api, f"slow {n}", **body) for n in (1, 2)))
    told = [await followed(api, started["turn"]) for started in (first, second)]
    versions = [event["data"] for events in told for event in events if event["type"] == "turn.version"]
    assert {version["number"] for version in versions} == {2, 3}
    assert len({version["branch"] for version in versions}) == 2
    assert await user_texts(api, "twice", "main") == ["one", "two"]
    last = max(versions, key=lambda version: version["number"])
    assert last["replaces"] in (first["turn"], second["turn"])
    assert [words.partition(" ")[0] for words in await user_texts(api, "twice")] == ["one", "slow"]


async def test_a_turn_stopped_while_it_waits_or_before_it_said_anything_leaves_no_branch(
    api: httpx.AsyncClient,
) -> None:
    await talk(api, "waits", "one", cell="a")
    running = await start_turn(api, "slow", session="waits")
    waiting = await start_turn(api, "uno", session="waits", cell="a", rerun="ask")
    await api.post(f"agent/v1/turns/{waiting['turn']}/cancel", json={})
    await followed(api, running["turn"])
    branches = (await api.get("agent/v1/sessions/waits/branches")).json()["branches"]
    assert [branch["name"] for branch in branches] == ["main"]
    assert await user_texts(api, "waits") == ["one", "slow"]


async def test_a_change_of_a_session_that_another_window_has_changed_is_refused(api: httpx.AsyncClient) -> None:
    await talk(api, "windows", "one")
    path = "agent/v1/sessions/windows"
    seen = {"If-Match": (await api.get(path)).headers["ETag"]}
    first = await api.patch(path, json={"title": "Mine", "tags": ["a", "b"]}, headers=seen)
    assert (first.status_code, first.json()["tags"]) == (200, ["a", "b"])
    for request in (
        api.build_request("PATCH", path, json={"title": "Yours"}, headers=seen),
        api.build_request("POST", f"{path}/undo", json={}, headers=seen),
        api.build_request("POST", f"{path}/branches", json={}, headers=seen),
        api.build_request("PUT", f"{path}/branch", json={"name": "main"}, headers=seen),
        api.build_request("POST", f"{path}/clear", json={}, headers=seen),
        api.build_request("DELETE", path, headers=seen),
    ):
        refused = await api.send(request)
        assert refused.status_code == 409, request.url
        assert refused.json()["error"]["details"]["revision"] == first.json()["revision"]
    current = {"If-Match": first.headers["ETag"]}
    assert (await api.patch(path, json={"metadata": {"k": [1]}}, headers=current)).json()["title"] == "Mine"
    assert (await api.patch(path, json={}, headers=current)).status_code == 400
    assert (await api.patch(path, json={"title": "x"}, headers={"If-Match": "soon"})).status_code == 400


async def test_a_fork_has_the_first_turns_under_an_id_of_its_own(api: httpx.AsyncClient) -> None:
    await talk(api, "source", "one", "two", "three")
    fork = await api.post("agent/v1/sessions/source/fork", json={"turns": 2, "id": "the fork"})
    assert fork.status_code == 201
    assert await user_texts(api, "the%20fork") == ["one", "two"]
    assert (await api.post("agent/v1/sessions/source/fork", json={"id": "the fork"})).status_code == 409
    assert (await api.post("agent/v1/sessions/source/fork", json={"bind": True})).status_code == 400


async def test_undo_takes_the_newest_turn_back_and_says_what_it_ran(api: httpx.AsyncClient) -> None:
    await talk(api, "undone", "one", "two")
    before = (await api.get("agent/v1/sessions/undone")).json()
    answer = (await api.post("agent/v1/sessions/undone/undo", json={})).json()
    assert (answer["session"]["turns"], answer["session"]["head"]) == (1, 2)
    after = (await api.get("agent/v1/sessions/undone")).json()
    assert (before["turns"], after["turns"]) == (2, 1)
    [listed] = (await api.get("agent/v1/sessions?name=undone")).json()["sessions"]
    assert (listed["turns"], listed["head"]) == (1, 2)
    assert (answer["undone"]["prompt"], answer["undone"]["ran"]) == ("two", [])
    assert await user_texts(api, "undone") == ["one"]
    await api.post("agent/v1/sessions/undone/undo", json={})
    assert (await api.post("agent/v1/sessions/undone/undo", json={})).json()["undone"] is None


async def test_sessions_are_found_by_their_names(api: httpx.AsyncClient) -> None:
    await api.post("agent/v1/sessions", json={"id": "by-name", "title": "Rain in Ålesund", "bind": False})
    await api.patch("agent/v1/sessions/by-name", json={"tags": ["weather"], "metadata": {"secret": 1}})
    for name in ("ålesund", "WEATHER", "by-na"):
        found = (await api.get("agent/v1/sessions", params={"name": name})).json()["sessions"]
        assert [session["id"] for session in found] == ["by-name"]
        assert "metadata" not in found[0], "a list shows titles, not what programs keep there"


async def test_a_private_session_is_nowhere_but_in_memory(server: AgentServer) -> None:
    async with server.client() as client:
        made = (await client.post("agent/v1/sessions", json={"private": True})).json()
        assert made["private"]
        turn = (await talk(client, made["id"], "a secret nobody keeps"))[0]
        assert (await client.get(f"agent/v1/turns/{turn}")).json()["state"] == "committed"
        listed = (await client.get("agent/v1/sessions", params={"limit": 1000})).json()["sessions"]
        assert made["id"] not in [session["id"] for session in listed]
        assert (await client.get(f"agent/v1/sessions/{made['id']}")).json()["turns"] == 1
        inside = await client.post(f"agent/v1/sessions/{made['id']}/fork", json={})
        assert inside.json()["private"]
        outside = await client.post(f"agent/v1/sessions/{made['id']}/fork", json={"id": "not private"})
        assert outside.status_code == 400
    for file in server.directory.rglob("*"):
        if file.is_file():
            assert b"a secret nobody keeps" not in file.read_bytes(), file
