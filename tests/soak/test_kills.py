"""Kills servers, sandboxes and kernels at random while many turns run on two servers that share one store."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.processes import Process, descendants, survivors
from tests.server import AgentServer, Json, follow, followed, start_turn
from tests.soak.conftest import Soak
from tests.soak.server_state import RECOVERY_S, check_sidecars, check_store, left_overs, open_turns

CLIENTS = 6
ROUND_S = 15.0
NOTEBOOKS = ("one.ipynb", "folder/two.ipynb")
SANDBOX = "agent_kernel.sandbox.worker.supervisor"
CODE = {
    "quick": "x = sum(range(1000))\nprint('quick', x)",
    "sleeps": "import time\nprint('begun', flush=True)\ntime.sleep(2)\nprint('over')",
    "breeds": "import subprocess\nsubprocess.Popen(['sleep', '300'])\nsubprocess.Popen(['sleep', '301'])\n'bred'",
    "dies": "import os\nprint('dying', flush=True)\nos._exit(3)",
    "shouts": "print('loud ' * 50_000)",
    "fails": "raise ValueError('as it must')",
}
SCRIPT: list[Json] = [
    {"when": "talks", "text": "word " * 60, "deltas": 60, "delay": 0.03, "reasoning": "Hm.", "loop": True},
    *(
        {"when": name, "text": "I compute.", "calls": [{"name": "python", "arguments": {"code": code}}], "loop": True}
        for name, code in CODE.items()
    ),
    {"text": "Hello.", "loop": True},
]
PROMPTS = ("talks", *CODE, "says hello")


@dataclass
class Party:
    """Two servers, their sessions, and the end of each turn as clients saw it."""

    soak: Soak
    servers: Sequence[AgentServer]
    store: Path
    kernels: dict[tuple[int, str], str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    dead: list[Process] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    over: bool = False

    async def open_notebooks(self, which: int) -> None:
        for notebook in NOTEBOOKS:
            server = self.servers[which]
            (server.root / notebook).parent.mkdir(exist_ok=True)
            self.kernels[which, notebook] = await server.start_kernel(notebook)

    # ------------------------------------------------------------------------------------------------- clients

    async def visit(self, chance: random.Random) -> None:
        """Act as one user: run turn after turn, on either server, and follow, leave or stop them."""
        while not self.over:
            which = chance.randrange(len(self.servers))
            if which in self.down:
                await asyncio.sleep(0.2)
                continue
            try:
                async with self.servers[which].client() as client:
                    await self._turn(client, which, chance)
            except httpx.TransportError:
                self.soak.counts["connections lost"] += 1
                await asyncio.sleep(0.2)

    async def _turn(self, client: httpx.AsyncClient, which: int, chance: random.Random) -> None:
        place = chance.choice(
            [{"session": f"mine-{which}-{chance.randrange(3)}"}, {"session": f"shared-{chance.randrange(2)}"}]
            + [{"kernel": kernel} for (server, _), kernel in self.kernels.items() if server == which]
        )
        body = {"prompt": chance.choice(PROMPTS), "max_tool_rounds": chance.randrange(3)}
        where = {"where": "live", "client_tools": ["python"], "answers": ["*"]} if chance.random() < 0.3 else {}
        reply = await client.post("agent/v1/turns", json={**body, **place, **({"where": "sandbox"} | where)})
        if reply.status_code == 404 and "kernel" in place:
            return  # its server was started again, and has other kernels now
        assert reply.status_code == 202, reply.text
        turn = reply.json()["turn"]
        self.soak.counts["turns"] += 1
        leave_after = chance.choice([1, 3, 10, 10_000, 10_000])
        async with aclosing(follow(client, turn)) as events:  # type: ignore[type-var]
            async for event in events:
                await self._answer(client, turn, event, chance)
                if event["type"] == "turn.finished":
                    self._finished(turn, event["data"])
                elif event["seq"] >= leave_after:
                    break
        if chance.random() < 0.2:
            state = (await client.post(f"agent/v1/turns/{turn}/cancel", json={})).json()["state"]
            self.soak.counts["turns stopped by a client"] += state == "cancelled"

    def _finished(self, turn: str, end: Json) -> None:
        assert end["state"] != "failed", end
        self.seen[turn] = end["state"]
        self.soak.counts[f"turns seen {end['state']}"] += 1

    async def _answer(self, client: httpx.AsyncClient, turn: str, event: Json, chance: random.Random) -> None:
        """Answer as a notebook would: decide on approvals, claim and run offers; sometimes disappear with a claim."""
        data = event["data"]
        if event["type"] == "approval.required":
            decision = chance.choice(["approve", "approve", "deny"])
            await client.post(f"agent/v1/agent/approvals/{data['approval']}", json={"decision": decision})
        elif event["type"] == "call.offered":
            reply = await client.post(f"agent/v1/turns/{turn}/claims", json={"call": data["call"], "client": "soak"})
            if reply.status_code != 200:
                return
            if chance.random() < 0.15:
                await client.post(f"agent/v1/turns/{turn}/cancel", json={"reason": "went away with the call"})
                return
            path = f"agent/v1/turns/{turn}/claims/{data['call']}"
            token = {"token": reply.json()["token"]}
            await client.post(path, json={**token, "action": "output", "text": "said\n"})
            await client.post(path, json={**token, "action": "finish", "status": "success", "text": "said"})
            self.soak.counts["live calls run"] += 1

    # ------------------------------------------------------------------------------------------------ killing

    async def disturb(self, chance: random.Random) -> None:
        while not self.over:
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            await chance.choices([self._kill_server, self._kill_sandbox, self._kill_kernel], [2, 5, 1])[0](chance)

    async def _kill_server(self, chance: random.Random) -> None:
        which = chance.randrange(len(self.servers))
        await self.kill(which)
        await asyncio.sleep(chance.uniform(0, 2))
        await self.revive(which)

    async def kill(self, which: int) -> None:
        """Kill a server. It is stopped first, so that it starts no child between the listing and the kill."""
        server = self.servers[which]
        assert server.process is not None
        self.down.add(which)
        server.process.send_signal(signal.SIGSTOP)
        self.dead += descendants(server.process.pid)
        await server.kill()
        self.soak.counts["servers killed"] += 1

    async def revive(self, which: int) -> None:
        await self.servers[which].start()
        await self.open_notebooks(which)
        self.down.discard(which)

    async def _kill_sandbox(self, chance: random.Random) -> None:
        await self._kill_one(chance, SANDBOX, "sandbox processes killed")

    async def _kill_kernel(self, chance: random.Random) -> None:
        await self._kill_one(chance, "ipykernel_launcher", "kernels killed")

    async def _kill_one(self, chance: random.Random, what: str, counted: str) -> None:
        processes = [server.process for server in self.servers if server.process is not None]
        found = [one for process in processes for one in descendants(process.pid) if what in one.command]
        if found:
            chance.choice(found).send(signal.SIGKILL)
            self.soak.counts[counted] += 1

    # ------------------------------------------------------------------------------------------------ the truth

    async def check(self) -> None:
        """Check the store, the sidecars and the process table after all users have left."""
        await self._until_closed()
        found = await asyncio.to_thread(check_store, self.store)
        for what, count in found.items():
            self.soak.counts[what] = max(self.soak.counts[what], count)
        with closing(sqlite3.connect(self.store)) as db:
            stored = dict(db.execute("SELECT id, state FROM turns").fetchall())
        # One that was stopped in the queue was never opened.
        expected = {turn: state for turn, state in self.seen.items() if turn in stored or state != "cancelled"}
        wrong = {turn: (state, stored.get(turn)) for turn, state in expected.items() if stored.get(turn) != state}
        assert not wrong, f"turns that ended in another way than clients were told: {wrong}"
        assert await survivors(self.dead, 20) == [], "processes outlived their server"
        self.soak.counts["processes of killed servers gone"] += len(self.dead)
        self.dead.clear()
        self.soak.counts["sidecars read"] += sum(len(check_sidecars(server.root)) for server in self.servers)
        self.soak.counts["checks"] += 1

    async def _until_closed(self) -> None:
        """Stop turns that nobody follows any more, also queued ones. Wait RECOVERY_S until those of a killed server are
        closed.
        """
        for _ in range(int(RECOVERY_S)):
            left = open_turns(self.store)
            for server in self.servers:
                async with server.client() as client:
                    for turn in left:
                        path = f"agent/v1/turns/{turn.turn}/cancel"
                        await client.post(path, params={"session": turn.session}, json={})
            if not left:
                return
            await asyncio.sleep(1)
        raise AssertionError(f"still open after {RECOVERY_S} s: {open_turns(self.store)}")

    async def go_on(self, sessions: Sequence[str]) -> None:
        async with self.servers[0].client() as client:
            for session in sessions:
                started = await start_turn(client, "says hello", session=session)
                assert (await followed(client, started["turn"]))[-1]["data"]["state"] == "committed"
                self.soak.counts["sessions that went on"] += 1

    async def tidy(self) -> None:
        """Run one more turn in every notebook. Check that its sidecar is complete and no partial file is beside it."""
        for (which, _), kernel in self.kernels.items():
            async with self.servers[which].client() as client:
                started = await start_turn(client, "says hello", kernel=kernel, where="sandbox")
                await followed(client, started["turn"])
        await asyncio.sleep(2)  # a sidecar is written a moment after its turn
        for server in self.servers:
            self.soak.counts["sidecars read"] += len(check_sidecars(server.root))
            until = time.monotonic() + 60
            while (left := left_overs(server.root)) and time.monotonic() < until:
                await asyncio.sleep(0.5)
            assert left == []

    def sessions(self) -> list[str]:
        with closing(sqlite3.connect(self.store)) as db:
            return [session for (session,) in db.execute("SELECT id FROM sessions ORDER BY id")]


async def one_round(party: Party, number: int) -> None:
    party.over = False
    seed = f"{party.soak.seed} {number}"
    clients = [asyncio.create_task(party.visit(random.Random(f"{seed} client {index}"))) for index in range(CLIENTS)]
    killer = asyncio.create_task(party.disturb(random.Random(f"{seed} killer")))
    tasks = {*clients, killer}
    done, _ = await asyncio.wait(tasks, timeout=ROUND_S, return_when=asyncio.FIRST_EXCEPTION)
    party.over = True
    if not done:
        _, late = await asyncio.wait({killer}, timeout=120)
        assert not late, "a server did not come up again"
        # A client may wait for a turn of another server that was killed; its place in the queue ends here.
        await asyncio.wait(clients, timeout=4)
    for task in tasks - done:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.soak(0.3)
async def test_kills(soak: Soak, agent_server: ServerFactory, tmp_path: Path) -> None:
    data = tmp_path / "data"
    servers = [await agent_server(SCRIPT, name, data_dir=data) for name in ("one", "two")]
    party = Party(soak, servers, data / "sessions.db")
    for which in range(len(servers)):
        await party.open_notebooks(which)
    soak.begin()
    number = 0
    while soak.running:
        await one_round(party, number)
        await party.check()
        await party.go_on(soak.random.sample(party.sessions(), 3))
        number += 1
    await party.go_on(party.sessions())
    await party.tidy()
    families = [one for server in servers if server.process for one in descendants(server.process.pid)]
    for server in servers:
        await server.stop()
    assert await survivors(families, 20) == [], "a server that was stopped left processes behind"
    await asyncio.to_thread(check_store, party.store)
    assert open_turns(party.store) == []
    assert soak.counts["servers killed"] + soak.counts["sandbox processes killed"], "nothing was killed"
