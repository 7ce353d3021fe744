"""Tests ``agent-kernel serve --hub`` as a service of a real JupyterHub: two users, an administrator, and the hub's
tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx
import openai
import pytest
import pytest_asyncio
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.notebook.notebook import Notebook
from tests.peers.jupyterhub import SERVICE_TOKEN, Hub, HubUser
from tests.server import ROOT, AgentServer, followed, free_port, start_turn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
SCRIPT: list[dict[str, Any]] = [
    {"when": "compute", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"when": "compute", "text": "The service says 42."},
    {"when": "environment", "calls": [{"name": "python", "arguments": {"code": "import os; print(list(os.environ))"}}]},
    {"when": "environment", "text": "That was it."},
    {"when": "a long story", "text": "word " * 600, "deltas": 600, "delay": 0.05, "loop": True},
    {"text": "Hello from the service.", "loop": True},
]
CACHE_S = 2
CONFIG = f"""
c.HubIdentityProvider.cache_s = {CACHE_S}
c.ServerApp.identity_provider_class = "jupyter_server.auth.identity.IdentityProvider"
c.IdentityProvider.token = "nonsense"
c.ServerApp.allow_unauthenticated_access = True
"""
"""A login that is meant for other servers of the machine does not open this one."""
BUDGET = 5
ENGINES = {"service": {"url": "SERVICE/v1", "model": "default", "api_key_env": "JUPYTERHUB_API_TOKEN"}}
USERS = {"AGENT_KERNEL_ENGINE": "service", "AGENT_KERNEL_ENGINES": json.dumps(ENGINES)}
LIMITS = {"AGENT_KERNEL_USER_REQUESTS_PER_MINUTE": str(BUDGET), "AGENT_KERNEL_SANDBOX": "auto"}
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory, hub_python: str) -> AsyncGenerator[Hub, None]:
    directory = tmp_path_factory.mktemp("hub")
    (directory / "service-config").mkdir()
    (directory / "service-config" / "jupyter_server_config.py").write_text(CONFIG)
    async with Hub(directory, Path(hub_python), SCRIPT, USERS, LIMITS) as hub:
        for name in ("eve", "bob@example.com"):
            await hub.new_user(name)
        await until_healthy(hub)
        yield hub


async def until_healthy(hub: Hub) -> None:
    end = time.monotonic() + 60
    async with hub.service_client("") as http:
        while (await http.get("health")).status_code != 200:
            assert time.monotonic() < end, hub.log.read_text()[-4000:]
            await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(hub: Hub) -> HubUser:
    """A user with a server; the others have tokens only."""
    return await hub.user("ada")


async def token_of(hub: Hub, name: str, **options: Any) -> str:
    return str((await hub.new_token(name, **options))["token"])


async def read_usage(hub: Hub, token: str) -> dict[str, Any]:
    async with hub.service_client(token) as http:
        return dict((await http.get("v1/usage")).json())


# -------------------------------------------------------------------------------------------------- who gets in


async def test_both_vendors_clients_ask_with_a_token_of_the_hub(hub: Hub) -> None:
    token = await token_of(hub, "eve")
    async with openai.AsyncOpenAI(base_url=f"{hub.service_url}v1", api_key=token, max_retries=0) as client:
        whole = await client.chat.completions.create(model="agent/default", messages=HELLO)
    async with anthropic.AsyncAnthropic(base_url=hub.service_url, api_key=token, max_retries=0) as claude:
        message = await claude.messages.create(model="default", max_tokens=100, messages=HELLO)
    assert whole.choices[0].message.content == "Hello from the service."
    assert [block.text for block in message.content if block.type == "text"] == ["Hello from the service."]
    assert (await read_usage(hub, token))["user"] == "eve"


@pytest.mark.parametrize(
    "path", ["", "v1/models", "agent/v1/sessions", "metrics", "login", "api/contents", "v1/unknown"]
)
async def test_without_a_token_that_the_hub_knows_nothing_opens_and_no_cookie_is_set(hub: Hub, path: str) -> None:
    for token in ("", "nonsense", "ak_0123456789ab_" + "0" * 64):
        async with hub.service_client(token) as http:
            refused = await http.get(path)
        assert refused.status_code == 401, refused.text
        assert "set-cookie" not in refused.headers


async def test_a_token_in_the_url_and_the_login_of_the_browser_open_nothing(hub: Hub, ada: HubUser) -> None:
    async with hub.service_client("") as http:
        assert (await http.get(f"v1/models?token={ada.token}")).status_code == 401
    async with ada.logged_in() as browser:
        assert (await browser.get("services/agent/v1/models")).status_code == 401
        assert (await browser.post("services/agent/v1/chat/completions", json={"messages": HELLO})).status_code == 401


async def test_a_token_without_the_scope_of_the_service_is_refused_and_the_answer_names_it(hub: Hub) -> None:
    async with hub.service_client(await token_of(hub, "eve", scopes=["read:users!user"])) as http:
        refused = await http.get("v1/models")
    assert refused.status_code == 403
    assert "access:services!service=agent" in refused.text


async def test_other_services_of_the_hub_are_no_users(hub: Hub) -> None:
    async with hub.service_client(SERVICE_TOKEN) as http:
        refused = await http.get("v1/models")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")


async def test_a_user_who_is_called_like_the_namespace_of_the_operator_is_refused(hub: Hub) -> None:
    await hub.new_user("local")
    async with hub.service_client(await token_of(hub, "local")) as http:
        assert (await http.get("v1/models")).status_code == 403


async def test_code_of_a_turn_does_not_inherit_the_token_of_the_service(hub: Hub) -> None:
    async with hub.service_client(await token_of(hub, "eve")) as http:
        events = await followed(http, (await start_turn(http, "environment"))["turn"])
    (ran,) = [event["data"] for event in events if event["type"] == "call.finished"]
    assert "PATH" in ran["text"], ran
    assert "JUPYTERHUB_API_TOKEN" not in ran["text"]


# ------------------------------------------------------------------------------------------- users and their limits


async def test_each_user_has_sessions_files_and_limits_of_their_own(hub: Hub) -> None:
    tokens = {name: await token_of(hub, name) for name in ("eve", "bob@example.com")}
    async with hub.service_client(tokens["bob@example.com"]) as bob, hub.service_client(tokens["eve"]) as eve:
        started = await bob.post("agent/v1/turns", json={"prompt": "hello", "session": "of-bob"})
        assert started.status_code == 202, started.text
        uploaded = await bob.post("v1/files", files={"file": ("a.txt", b"of bob")}, data={"purpose": "user_data"})
        assert uploaded.status_code in (200, 201), uploaded.text
        file, turn = uploaded.json()["id"], started.json()["turn"]
        mine = ["agent/v1/sessions/of-bob", f"agent/v1/turns/{turn}", f"v1/files/{file}/content"]
        assert [(await bob.get(path)).status_code for path in mine] == [200, 200, 200]
        assert [(await eve.get(path)).status_code for path in mine] == [404, 404, 404]
        assert (await eve.post(f"agent/v1/turns/{turn}/cancel")).status_code == 404
        assert (await eve.delete(mine[2].removesuffix("/content"))).status_code == 404
        await eve.delete(mine[0])
        assert [(await bob.get(path)).status_code for path in mine] == [200, 200, 200]
        listed = (await eve.get("agent/v1/sessions")).json()["sessions"]
        assert "of-bob" not in {session["id"] for session in listed}


async def test_a_user_whose_turns_are_used_up_is_refused_and_another_is_not(hub: Hub) -> None:
    for name in ("spent", "other"):
        await hub.new_user(name)
    tokens = [await token_of(hub, "spent"), await token_of(hub, "spent"), await token_of(hub, "other")]
    first, second, other = [hub.service_client(token) for token in tokens]
    async with first, second, other:

        async def ask(http: httpx.AsyncClient) -> int:
            return (await http.post("v1/chat/completions", json={"model": "default", "messages": HELLO})).status_code

        assert [await ask(first) for _ in range(BUDGET)] == [200] * BUDGET
        assert await ask(first) == await ask(second) == 429, "another token is the same user"
        assert await ask(other) == 200


async def test_only_administrators_of_the_hub_administer_and_only_with_a_token_that_may(hub: Hub) -> None:
    access = "access:services!service=agent"
    admin, reduced = await token_of(hub, "root"), await token_of(hub, "root", scopes=[access])
    for token, expected in ((admin, 200), (reduced, 403), (await token_of(hub, "eve"), 403)):
        async with hub.service_client(token) as http:
            assert (await http.get("metrics")).status_code == expected
            assert (await http.post("v1/engine/unload", json={})).status_code == expected
            assert (await http.get("v1/models")).status_code == 200
    async with hub.service_client(admin) as http:
        assert (await http.post("v1/trust", json={"folder": "/"})).status_code == 403, "nobody trusts a folder here"
        assert (await http.get("agent/v1/sessions/of-bob")).status_code == 404, "and nobody reads what is another's"


# ------------------------------------------------------------------------------------------------ revoked, and away


async def test_a_revoked_token_opens_nothing_within_the_stated_time_and_its_streams_end(hub: Hub) -> None:
    made = await hub.new_token("eve")
    body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "a long story"}]}
    # Directly, because the hub's proxy keeps the connection of a client whose stream the service has cut.
    direct = hub.service_client(made["token"], hub.inside_url)
    async with direct as http, http.stream("POST", "v1/chat/completions", json=body) as story:
        assert story.status_code == 200
        chunks = story.aiter_bytes()
        await anext(chunks)
        await hub.revoke("eve", made["id"])
        revoked = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in chunks:
                pass
        assert time.monotonic() - revoked < CACHE_S + 20
        assert (await http.get("v1/models")).status_code == 401


async def test_a_live_connection_closes_when_its_token_is_revoked(hub: Hub) -> None:
    made = await hub.new_token("eve")
    url = hub.inside_url.replace("http", "ws", 1) + "agent/v1/socket"
    socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {made['token']}"}))
    await socket.write_message(json.dumps({"do": "ping"}))
    assert await socket.read_message() is not None
    await hub.revoke("eve", made["id"])
    revoked = time.monotonic()
    while await socket.read_message() is not None:
        pass
    socket.close()
    assert time.monotonic() - revoked < CACHE_S + 20


async def test_while_the_hub_does_not_answer_nobody_gets_in_and_the_answer_says_why(hub: Hub) -> None:
    """It takes the 10 seconds that the hub has to answer."""
    token, known = await token_of(hub, "bob@example.com"), await token_of(hub, "bob@example.com")
    async with hub.service_client(known) as http:
        assert (await http.get("v1/models")).status_code == 200
    os.kill(hub.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(CACHE_S)
        async with hub.service_client(token) as new, hub.service_client(known) as old, hub.service_client("") as nobody:
            answers = await asyncio.gather(new.get("v1/models"), old.get("v1/models"), nobody.get("health"))
    finally:
        os.kill(hub.pid, signal.SIGCONT)
    *refused, probe = answers
    for answer in refused:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "hub_unavailable"), answer.text
        assert int(answer.headers["Retry-After"]) > 0
    assert probe.status_code == 200
    async with hub.service_client(token) as http:
        assert (await http.get("v1/models")).status_code == 200


# ------------------------------------------------------------------------------------- started by somebody else


@contextmanager
def serving(python: str, directory: Path, api_url: str) -> Iterator[str]:
    """Run ``agent-kernel serve --hub`` outside of a hub and yield its URL."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]]),
        "AGENT_KERNEL_ENGINE": "scripted",
        "AGENT_KERNEL_SCRIPT": str(directory / "script.json"),
        "JUPYTERHUB_SERVICE_NAME": "agent",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/agent/",
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1",
        "JUPYTERHUB_API_URL": api_url,
    }
    (directory / "script.json").write_text(json.dumps(SCRIPT))
    command = [python, "-m", "agent_kernel", "serve", "--hub", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=directory)
    assert process.stdout is not None
    try:
        started = json.loads(process.stdout.readline())
        assert started["token_file"] is None
        assert started["limits"]["user_requests_per_minute"] > 0
        yield str(started["url"])
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_it_may_run_elsewhere_and_ask_the_hub_through_its_proxy(
    hub: Hub, hub_python: str, tmp_path: Path
) -> None:
    token = await token_of(hub, "eve")
    with serving(hub_python, tmp_path, f"{hub.url}hub/api") as url:
        async with hub.service_client(token, url) as http:
            assert (await http.get("v1/usage")).json()["user"] == "eve"


async def test_a_hub_that_is_not_there_lets_nobody_in(hub: Hub, hub_python: str, tmp_path: Path) -> None:
    with serving(hub_python, tmp_path, f"http://127.0.0.1:{free_port()}/hub/api") as url:
        async with hub.service_client("any", url) as http, hub.service_client("", url) as nobody:
            refused = await http.post("v1/chat/completions", json={"model": "default", "messages": HELLO})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "hub_unavailable")
            assert (await nobody.get("v1/models")).status_code == 401


# ------------------------------------------------------------------------------------------------ as an engine


async def test_the_server_of_a_user_has_the_service_as_its_engine_and_keeps_the_conversation(
    hub: Hub, ada: HubUser
) -> None:
    async with Notebook(cast("AgentServer", ada), await ada.notebook("first.ipynb")) as notebook:
        ran = await notebook.run("%%agent\ncompute")
    assert ran.status == "ok", ran.error
    assert "The service says 42." in ran.text
    async with ada.client() as http:
        assert len((await http.get("agent/v1/sessions")).json()["sessions"]) == 1
    counted = await read_usage(hub, ada.token)
    assert (counted["user"], counted["requests_per_minute"]["used"]) == ("ada", 2)
    async with hub.service_client(ada.token) as http:
        assert (await http.get("agent/v1/sessions")).json()["sessions"] == []
