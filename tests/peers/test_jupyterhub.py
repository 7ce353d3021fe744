"""Tests two users of a real JupyterHub: cells, sessions, links and activity, each through the hub's proxy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from playwright.sync_api import expect, sync_playwright

from tests.browser.lab import FLAGS, SLOW_MS, Lab
from tests.browser.panel import ask, ended, shown_panel
from tests.conftest import chromium
from tests.notebook.notebook import Notebook
from tests.peers.jupyterhub import PASSWORD, Hub, HubUser
from tests.server import AgentServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
SCRIPT: list[dict[str, Any]] = [
    {"when": "compute", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"when": "compute", "text": "It is 42."},
    {"when": "a long story", "text": "word " * 400, "deltas": 400, "delay": 0.05},
    {"text": "Hello.", "loop": True},
]
SETTINGS = {"JUPYTERHUB_ACTIVITY_INTERVAL": "1"}
"""How often, in seconds, a server tells the hub when it was last used: 300 by default."""
CULLED_AFTER_S = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory, hub_python: str) -> AsyncGenerator[Hub, None]:
    async with Hub(tmp_path_factory.mktemp("hub"), Path(hub_python), SCRIPT, SETTINGS) as hub:
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


@contextmanager
def pages(*users: HubUser) -> Iterator[list[Lab]]:
    """A page of each user, who has logged in by the form of the hub, in a browser that the users do not share."""
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=chromium(), headless=True, args=list(FLAGS))) as chrome,
    ):
        labs = []
        for user in users:
            page = chrome.new_context(viewport={"width": 1400, "height": 1000}).new_page()
            page.goto(f"{user.hub_url}hub/login")
            page.get_by_label("Username:").fill(user.name)
            page.get_by_label("Password:").fill(PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url("**/user/**")
            labs.append(Lab(page, user.url, ""))
        yield labs


def show_notebook(lab: Lab, user: HubUser, notebook: str) -> None:
    toast = lab.page.locator(".Toastify__toast", has_text="official Jupyter news")
    lab.page.add_locator_handler(toast, lambda shown: shown.get_by_role("button", name="No", exact=True).click())
    lab.page.goto(f"{user.url}lab/tree/{notebook}?reset")
    lab.wait_open()


def talk(user: HubUser, lab: Lab) -> tuple[set[str], str]:
    """Ask in the panel. Returns what the page has requested, and the list of conversations."""
    requested: set[str] = set()
    lab.page.on("request", lambda request: requested.add(request.url))
    lab.page.on("websocket", lambda socket: requested.add(socket.url))
    show_notebook(lab, user, "panel.ipynb")
    panel = shown_panel(lab.page)
    turn = ask(panel, f"hello from {user.name}")
    expect(turn).to_contain_text("Hello.")
    ended(turn)
    panel.get_by_role("button", name="Menu").click()
    panel.get_by_role("menuitem", name="All conversations").click()
    sheet = panel.get_by_role("dialog", name="Conversations")
    sheet.get_by_label("Search conversations").fill("hello from")
    expect(sheet.locator("q").first).to_be_visible(timeout=SLOW_MS)
    return requested, sheet.inner_text()


@pytest.mark.browser
async def test_the_panel_of_each_user_answers_through_the_proxy_and_nothing_of_the_other_user_is_in_it(
    ada: HubUser, bob: HubUser
) -> None:
    users = (ada, bob)
    for user in users:
        await user.notebook("panel.ipynb")

    def visit() -> None:
        with pages(*users) as labs:
            for user, lab, other in zip(users, labs, reversed(users), strict=True):
                requested, listed = talk(user, lab)
                assert f"hello from {user.name}" in listed
                assert other.name not in listed
                assert {url for url in requested if "/agent/v1/" in url and url.startswith("ws")}, requested
                assert not {url for url in requested if f"/user/{other.name}/" in url}
                foreign = lab.page.goto(f"{other.url}lab")
                assert foreign is not None
                assert foreign.status in (403, 404)

    await asyncio.to_thread(visit)


@pytest.mark.browser
async def test_a_person_clicks_the_link_of_a_cell_and_confirms_at_the_address_of_the_proxy(ada: HubUser) -> None:
    async with open_notebook(ada, await ada.notebook("owned.ipynb")) as owner:
        session = (await owner.run("%%agent\nhello")).turn["session"]
    await ada.notebook("clicked.ipynb")

    def confirm() -> None:
        with pages(ada) as (lab,):
            show_notebook(lab, ada, "clicked.ipynb")
            lab.type_into(0, f"%agent use {session}")
            lab.run(0, wait=False)
            with lab.page.expect_popup() as popup:
                lab.output(0).get_by_role("link", name="Let this notebook use it").click()
            asked = popup.value
            assert asked.url.startswith(f"{ada.url}agent/v1/binds/")
            asked.get_by_role("button", name="Let it").click()
            expect(lab.cell(0)).to_contain_text(f"This notebook continues the session {session}.")

    await asyncio.to_thread(confirm)


async def test_a_culler_stops_an_idle_server_and_leaves_one_with_a_running_turn_until_it_has_ended(
    hub: Hub, ada: HubUser, bob: HubUser
) -> None:
    """The last test of this hub, because the culler stops the servers of all users."""
    async with ada.client() as http:
        started = await http.post("agent/v1/turns", json={"prompt": "a long story"})
        assert started.status_code == 202, started.text
    with hub.culler(f"--timeout={CULLED_AFTER_S}", "--cull-every=1"):
        await hub.until_server(bob.name, runs=False)
        await hub.until_server(ada.name, runs=False)
    await hub.start_server(ada.name)
    async with ada.client() as http:
        turn = (await http.get(f"agent/v1/turns/{started.json()['turn']}")).json()
    # The turn lasts twice as long as a server without activity is left running.
    assert turn["state"] == "committed", turn
