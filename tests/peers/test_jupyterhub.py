"""Tests two users of a real JupyterHub: cells, sessions, links and activity, each through the hub's proxy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from tests.notebook.notebook import Notebook
from tests.peers.jupyterhub import Hub, HubUser
from tests.server import AgentServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
SCRIPT: list[dict[str, Any]] = [
    {"when": "compute", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"when": "compute", "text": "It is 42."},
    {"when": "a long story", "text": "word " * 400, "deltas": 400, "delay": 0.02},
    {"text": "Hello.", "loop": True},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory, hub_python: str) -> AsyncGenerator[Hub, None]:
    async with Hub(tmp_path_factory.mktemp("hub"), Path(hub_python), SCRIPT, {}) as hub:
        yield hub


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(hub: Hub) -> HubUser:
    return await hub.user("ada")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bob(hub: Hub) -> HubUser:
    return await hub.user("bob")


def open_notebook(user: HubUser, kernel: str) -> Notebook:
    return Notebook(cast("AgentServer", user), kernel)


async def test_a_cell_of_each_user_runs_code_and_is_in_the_sessions_of_that_user_only(
    ada: HubUser, bob: HubUser
) -> None:
    sessions: dict[str, set[str]] = {}
    for user in (ada, bob):
        async with open_notebook(user, await user.notebook("first.ipynb")) as notebook:
            ran = await notebook.run("%%agent\ncompute")
            assert ran.status == "ok", ran.error
            assert "It is 42." in ran.text
        async with user.client() as http:
            listed = (await http.get("agent/v1/sessions")).json()["sessions"]
        sessions[user.name] = {session["id"] for session in listed}
    assert len(sessions["ada"]) == len(sessions["bob"]) == 1
    assert not sessions["ada"] & sessions["bob"]


async def test_the_token_of_another_user_opens_nothing(ada: HubUser, bob: HubUser) -> None:
    async with ada.client(token=bob.token) as http:
        refused = [(await http.get(path)).status_code for path in ("agent/v1/sessions", "agent/v1/models", "agent/v1/")]
    assert set(refused) <= {401, 403, 404}


async def test_a_person_confirms_the_request_of_a_kernel_by_a_link_through_the_proxy(ada: HubUser) -> None:
    async with open_notebook(ada, await ada.notebook("owner.ipynb")) as owner:
        assert (await owner.run("%%agent\nhello")).status == "ok"
        session = (await owner.run("%%agent\nhello again")).turn["session"]
    async with open_notebook(ada, await ada.notebook("guest.ipynb")) as guest:
        asking = asyncio.create_task(guest.run(f"%agent use {session}"))
        await guest.until_shown("Let this notebook use it")
        (path,) = re.findall(r"href='([^']+)'", guest.shown[-1])
        assert path.startswith("/user/ada/agent/v1/binds/")
        async with ada.logged_in() as browser:
            page = await browser.get(path, headers=BROWSER)
            assert page.status_code == 200
            (xsrf,) = re.findall(r'name="_xsrf" value="([^"]+)"', page.text)
            confirmed = await browser.post(page.url, data={"decision": "confirmed", "_xsrf": xsrf})
            assert confirmed.status_code == 200, confirmed.text
        ran = await asking
        assert ran.status == "ok", ran.error
        assert (await guest.run("%%agent\nhello")).turn["session"] == session


async def test_another_user_cannot_open_the_page_on_which_a_person_confirms(ada: HubUser, bob: HubUser) -> None:
    async with bob.logged_in() as browser:
        page = await browser.get("/user/ada/agent/v1/binds/any/confirm", headers=BROWSER)
    assert page.status_code in (403, 404)
    assert "decision" not in page.text


async def test_a_running_turn_is_activity_so_that_a_culler_keeps_the_server(ada: HubUser) -> None:
    async def last_activity() -> str:
        async with ada.client() as http:
            return str((await http.get("api/status")).json()["last_activity"])

    async with ada.client() as http:
        started = await http.post("agent/v1/turns", json={"prompt": "a long story"})
        assert started.status_code in (200, 201, 202), started.text
    before = await last_activity()
    await asyncio.sleep(2)
    assert await last_activity() > before
