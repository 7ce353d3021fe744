"""Attacks with one kernel's credential on another kernel and on users; guessed tokens and approvals."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from jupyter_ext.api.routes import ROUTES
from tests.jupyter_ext.conftest import ServerFactory
from tests.processes import descendants
from tests.server import KERNEL_HEADER, AgentServer, Json, followed, start_turn, wait_for_event
from tests.soak.conftest import Soak

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SECRET = "The number of notebook B is 4711."
SCRIPT: list[Json] = [
    {"when": "slow", "text": "word " * 4000, "deltas": 4000, "delay": 0.5, "loop": True},
    {"when": "look", "text": "I look.", "calls": [{"name": "python", "arguments": {"code": "1"}}], "loop": True},
    {"when": "number", "text": SECRET, "loop": True},
    {"text": "Nothing.", "loop": True},
]
LIVE = {"where": "live", "client_tools": ["python"], "answers": ["*"]}
BODIES: tuple[Json, ...] = (
    {}, {"prompt": "tell me"}, {"title": "taken"}, {"reason": "mine now"}, {"decision": "approve"},
    {"decision": "confirmed"}, {"consent": True},
)  # fmt: skip
JUPYTER = (
    "api/contents", "api/contents/b.ipynb", "api/kernels", "api/sessions", "api/config/notebook", "api/status",
    "files/b.ipynb", "files/b.agent.json", "api/contents/b.agent.json", "lab", "tree", "api/terminals",
    "nbconvert/html/b.ipynb", "api/shutdown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Victim:
    """Notebook B with a finished turn, a running one, and one that waits for an approval."""

    kernel: str
    session: str
    over: str
    running: str
    asking: str
    approval: str
    call: str

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.session, "b-asks", self.over, self.running, self.asking, self.approval, self.call, self.kernel)


async def victim(server: AgentServer) -> Victim:
    kernel = await server.start_kernel("b.ipynb")
    async with server.client() as client:
        over = await start_turn(client, "number", kernel=kernel, where="sandbox")
        await followed(client, over["turn"])
        asking = await start_turn(client, "look", kernel=kernel, session="b-asks", **LIVE)
        ask = (await wait_for_event(client, asking["turn"], "approval.required"))["data"]
        running = await start_turn(client, "slow", kernel=kernel, where="sandbox")
        await wait_for_event(client, running["turn"], "text.delta")
    ids = (over["session"], over["turn"], running["turn"], asking["turn"], ask["approval"], ask["call"])
    return Victim(kernel, *ids)


async def state(server: AgentServer, target: Victim) -> Any:
    """Return everything of B that an attack could change, as a user sees it."""
    async with server.client() as client:
        sessions = [(await client.get(f"agent/v1/sessions/{one}")).json() for one in (target.session, "b-asks")]
        for session in sessions:
            del session["accessed"]  # looking is use: the next line changes it
        items = [
            (await client.get(f"agent/v1/sessions/{one}/items")).json()["items"] for one in (target.session, "b-asks")
        ]
        bound = (await client.get("agent/v1/binding", params={"path": "b.ipynb"})).json()["session"]["id"]
        open_still = [
            (await client.get(f"agent/v1/turns/{one}")).json()["running"] for one in (target.running, target.asking)
        ]
        return sessions, items, bound, open_still


def draw_request(target: Victim, chance: random.Random) -> tuple[str, str, Json]:
    """Return a random method, a route filled with ids of B, and a body that may name B too."""
    pattern = chance.choice(ROUTES).pattern

    def fill(group: re.Match[str]) -> str:
        one = chance.choice(target.ids)
        return hashlib.sha256(one.encode()).hexdigest() if "64" in group[0] else quote(one, safe="")

    path = re.sub(r"\(\[(?:[^()]*)\)", fill, pattern).lstrip("/")
    bodies = [
        *BODIES,
        {"session": target.session},
        {"id": target.session, "title": "taken"},
        {"prompt": "x", "session": target.session},
        {"prompt": "x", "kernel": target.kernel},
        {"call": target.call, "client": "a"},
        {"action": "finish", "token": secrets.token_urlsafe(16), "status": "success", "text": "owned"},
    ]
    query = chance.choice(["", "", f"?kernel={target.kernel}", "?path=b.ipynb", f"?session={target.session}"])
    return chance.choice(METHODS), path + query, chance.choice(bodies)


def disguise_token(token: str, chance: random.Random) -> tuple[dict[str, str], Json]:
    """Return headers and query in which a kernel's credential takes the place of a user's; none of them may log in."""
    headers = [
        {"Authorization": f"token {token}"}, {"Authorization": f"Bearer {token}"}, {"x-api-key": token},
        {"Cookie": f"username-localhost={token}"}, {KERNEL_HEADER: token[:-1]}, {KERNEL_HEADER: token + "x"},
        {KERNEL_HEADER: token.swapcase()}, {KERNEL_HEADER: ""}, {KERNEL_HEADER: secrets.token_urlsafe(32)},
    ]  # fmt: skip
    return chance.choice([*((header, {}) for header in headers), ({}, {"token": token})])


async def attack_b(client: httpx.AsyncClient, target: Victim, soak: Soak) -> None:
    """Attack B with A's valid credential: the request must be refused or contain nothing of B."""
    method, path, body = draw_request(target, soak.random)
    try:
        reply = await client.request(method, path, json=body, timeout=30)
    except httpx.ReadTimeout:
        pytest.fail(f"{method} {path} with {body} is followed by the other kernel")
    told = f"{method} {path} {body} -> {reply.status_code} {reply.text[:500]}"
    assert reply.status_code < 500, told
    assert SECRET not in reply.text, told
    if reply.status_code < 400 and "agent/v1/sessions" not in path:
        # Of a listing it knows the titles; nowhere else is anything of B named.
        assert target.running not in reply.text, told
        assert target.approval not in reply.text, told
    where = path.split("?")[0]
    names_b = (where.endswith("/turns") and "prompt" in body) or where.endswith("/sessions")
    if target.session in where or (method == "POST" and names_b and target.session in body.values()):
        assert reply.status_code >= 400, told
    if method == "PUT" and body.get("session") == target.session and where.endswith("/binding"):
        assert reply.status_code in (202, 400, 403), told  # 202: a person is asked
    soak.counts["requests with another kernel's credential"] += 1
    soak.counts["of them refused"] += reply.status_code >= 400


async def attack_jupyter(server: AgentServer, token: str, soak: Soak) -> None:
    headers, query = disguise_token(token, soak.random)
    method, path = soak.random.choice(METHODS), soak.random.choice([*JUPYTER, "agent/v1/sessions", "agent/v1/turns"])
    async with server.client(None, headers) as client:
        reply = await client.request(method, path, params=query, json={"prompt": "x"})
    told = f"{method} {path} {headers} {query} -> {reply.status_code} {reply.text[:300]}"
    assert reply.status_code in (302, 401, 403, 404, 405), told
    assert SECRET not in reply.text
    soak.counts["requests with a credential in the wrong place"] += 1
    if path in ("api/contents/b.ipynb", "api/kernels"):  # the valid header means nothing to Jupyter itself
        async with server.kernel_client(token) as client:
            assert (await client.request(method, path, json={})).status_code in (302, 403, 405)


async def guess(server: AgentServer, kernel: str, soak: Soak) -> None:
    """Try approvals and claims that are nearly right. Then check that the right ones still work."""
    chance = soak.random
    async with server.client() as client:
        turn = (await start_turn(client, "look", kernel=kernel, max_tool_rounds=1, **LIVE))["turn"]
        ask = (await wait_for_event(client, turn, "approval.required"))["data"]["approval"]
        for wrong in (*near(ask, chance), f"appr_{secrets.token_hex(16)}", "appr_", "*"):
            reply = await client.post(f"agent/v1/agent/approvals/{quote(wrong, safe='')}", json={"decision": "approve"})
            assert reply.status_code == 404, (wrong, reply.text)
            soak.counts["approvals guessed"] += 1
        yes = await client.post(f"agent/v1/agent/approvals/{ask}", json={"decision": "approve"})
        assert (yes.json()["status"], yes.json()["decision"]) == ("resolved", "approve")
        call = (await wait_for_event(client, turn, "call.offered"))["data"]["call"]
        path = f"agent/v1/turns/{turn}/claims"
        claim = (await client.post(path, json={"call": call, "client": "right"})).json()
        assert (await client.post(path, json={"call": call, "client": "second"})).status_code == 409
        done = {"action": "finish", "status": "success", "text": "done"}
        for wrong in (*near(claim["token"], chance), secrets.token_urlsafe(16), "", "é", "\0"):
            for body in ({**done, "text": "owned"}, {"action": "output", "text": "owned"}, {"action": "renew"}):
                reply = await client.post(f"{path}/{call}", json={**body, "token": wrong})
                assert reply.status_code == 409, (wrong, reply.text)
                soak.counts["claims guessed"] += 1
        assert (await client.post(f"{path}/{call}", json={**done, "token": claim["token"]})).status_code == 200
        again = await client.post(f"{path}/{call}", json={**done, "token": claim["token"]})
        assert again.status_code in (404, 409)
        events = await followed(client, turn)
        assert events[-1]["data"]["state"] == "committed"
        assert "owned" not in str(events)


def near(right: str, chance: random.Random) -> list[str]:
    at = chance.randrange(len(right))
    other = "a" if right[at] != "a" else "b"
    found = [right[:at] + other + right[at + 1 :], right[:-1], right + "0", right.swapcase(), right[::-1], right[:at]]
    return [one for one in found if one not in (right, "")]


def credentials(server: AgentServer, kernel: str) -> set[str]:
    """Return the credentials in the environment of the kernel's processes, read from outside because a restarting
    kernel answers nobody.
    """
    mine = [one for one in descendants(server.pid) if f"kernel-{kernel}.json" in one.command]
    found = set()
    for one in mine:
        with contextlib.suppress(OSError):
            pairs = Path(f"/proc/{one.pid}/environ").read_bytes().decode(errors="replace").split("\0")
            found |= {pair.partition("=")[2] for pair in pairs if pair.startswith("AGENT_KERNEL_TOKEN=")}
    return found


async def attack_old_credential(server: AgentServer, kernel: str, old: str, soak: Soak) -> str:
    """Restart the kernel, check that its old credential is refused, and return the new one."""
    async with server.client() as client:
        (await client.post(f"api/kernels/{kernel}/restart")).raise_for_status()
    async with server.kernel_client(old) as client:
        assert (await client.get("agent/v1/binding")).status_code == 401
    for _ in range(300):
        if new := credentials(server, kernel) - {old}:
            soak.counts["old credentials refused"] += 1
            return new.pop()
        await asyncio.sleep(0.1)
    raise AssertionError("a restarted kernel has no credential")


@pytest.mark.soak(0.08)
async def test_attack_credentials(soak: Soak, agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    mine = await server.start_kernel("a.ipynb")
    token = await server.kernel_token(mine)
    target = await victim(server)
    before = await state(server, target)
    soak.begin()
    while soak.running:
        async with server.kernel_client(token) as client:
            for _ in range(40):
                await attack_b(client, target, soak)
                await attack_jupyter(server, token, soak)
        await guess(server, mine, soak)
        assert await state(server, target) == before, "something of B has changed"
        soak.counts["times that B was untouched"] += 1
        if soak.random.random() < 0.2:
            token = await attack_old_credential(server, mine, token, soak)
    async with server.client() as client:
        await client.post(f"agent/v1/turns/{target.running}/cancel", json={})
        await client.post(f"agent/v1/turns/{target.asking}/cancel", json={})
    log = server.log.read_text(errors="replace")
    assert "Uncaught exception" not in "".join(line for line in log.splitlines() if "agent/v1" in line)
