"""Runs hostile code in turns, alone and many at once, against things of the host; and tries names that escape their
directory.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agent_kernel.sessions.export.transcript import parse
from tests.processes import descendants, survivors
from tests.sandbox.attacks import ATTACKS, OTHER, PRELUDE, SECRET, UNSEEN, Scene, scene
from tests.server import AgentServer, Json, followed, start_turn
from tests.soak.conftest import Soak

HELPERS = """
import ast, json, threading
def fill(code, facts):
    for name, value in facts.items():
        code = code.replace('{' + name + '!r}', repr(value)).replace('{' + name + '}', str(value))
    return code
def run(code):
    tree = ast.parse(code)
    last = tree.body.pop()
    space = dict(globals())
    exec(compile(tree, 'attack', 'exec'), space)
    return eval(compile(ast.Expression(last.value), 'attack', 'eval'), space)
def carry_out(path):
    plan, said = json.load(open(path)), {}
    def one(name):
        try:
            said[name] = str(run(fill(plan['attacks'][name], plan['facts'])))
        except BaseException as error:
            said[name] = 'blocked by ' + type(error).__name__
    threads = [threading.Thread(target=one, args=(name,)) for name in plan['attacks']]
    for thread in threads:
        thread.start()
        if not plan['at once']:
            thread.join()
    for thread in threads:
        thread.join(20)
    print('SAID ' + json.dumps(said))
"""
GREEDY = {
    "forks without end": "import os\nwhile True:\n    os.fork()",
    "takes all memory": "held = []\nwhile True:\n    held.append(bytearray(64 << 20))",
    "prints without end": "while True:\n    print('x' * 100_000)",
    "starts threads without end": (
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(600,)).start()"
    ),
    "leaves children behind": "import subprocess\nfor _ in range(20):\n    subprocess.Popen(['sleep', '600'])\n'left'",
    "ignores interrupts": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass",
    "writes to the protocol": (
        "import os\nfor fd in range(3, 40):\n"
        '    try:\n        os.write(fd, b\'J\\xff\\xff\\xff\\xff{"type": "done"}\')\n'
        "    except OSError:\n        pass\n'wrote'"
    ),
    "says that it is done twice": (
        "import os, struct, json\nbody = json.dumps({'type': 'done', 'id': 1, 'status': 'success'}).encode()\n"
        "for fd in range(3, 40):\n"
        "    try:\n        os.write(fd, b'J' + struct.pack('>I', len(body)) + body)\n"
        "    except OSError:\n        pass"
    ),
    "closes everything": "import os\nos.closerange(0, 100)",
    "nests deeper than Python": "f = lambda: f()\nf()",
    "raises what has no words": "class E(Exception):\n    __str__ = lambda self: 1 / 0\nraise E",
    "shows what cannot be shown": "class R:\n    __repr__ = lambda self: chr(0xd800) * 10_000\nR()",
}
CLIMBING = (
    "../../../tmp/climbed", "..", ".", "/etc/climbed", "a/../../climbed", "C:\\climbed", "..\\..\\climbed", "~",
    "climbed.json", "sessions.db", "x" * 512, "\uff46\uff55\uff4c\uff4c", "\u202egpj.exe", "%2e%2e%2fclimbed",
    "name with spaces ", "-rf", "$(touch climbed)", "`touch climbed`", ";touch climbed", "'", '"', "e\u0301", "💥",
    "nul", "con", "climbed\u2028x", "~root",
)  # fmt: skip
SESSIONS = 3


@dataclass(frozen=True, slots=True)
class Lair:
    """One attacking session: the plan that it reads, its notebook's kernel, and the facts about the host that
    it gets.
    """

    number: int
    kernel: str
    facts: Json


@dataclass
class SceneServer(AgentServer):
    """A server of the notebooks in a scene; nothing else of the scene may be reached."""

    @property
    def root(self) -> Path:
        return self.directory / "project"


def script(project: Path) -> list[Json]:
    def called(code: str) -> list[Json]:
        return [{"name": "python", "arguments": {"code": code}}]

    rounds: list[Json] = [
        {
            "when": f"attack {number}",
            "calls": called(f"{PRELUDE}\n{HELPERS}\ncarry_out({str(project / f'plan-{number}.json')!r})"),
            "loop": True,
        }
        for number in range(SESSIONS)
    ]
    rounds += [{"when": name, "calls": called(code), "loop": True} for name, code in GREEDY.items()]
    rounds.append({"when": "write", "calls": called("open('mine', 'w').write('1')"), "loop": True})
    other = f"import os\nopen('mine', 'w').write({SECRET!r})\nprint('AT ' + os.getcwd())"
    return [*rounds, {"when": "other", "calls": called(other), "loop": True}, {"text": "Hello.", "loop": True}]


async def said_by(server: AgentServer, prompt: str, session: str, **body: str) -> Json:
    """Return the result of the one call of a turn."""
    async with server.client() as client:
        started = await start_turn(client, prompt, session=session, where="sandbox", max_tool_rounds=1, **body)
        events = await asyncio.wait_for(followed(client, started["turn"]), 180)
    assert events[-1]["data"]["state"] == "committed", events[-1]
    finished: Json = next(event["data"] for event in events if event["type"] == "call.finished")
    return finished


async def attack(server: AgentServer, here: Scene, lair: Lair, soak: Soak) -> None:
    """Run some attacks in a session that earlier attacks have used."""
    names = soak.random.sample(sorted(ATTACKS | UNSEEN), min(len(ATTACKS), soak.random.choice([1, 3, 8, 60])))
    code = {name: (ATTACKS | UNSEEN)[name] for name in names}
    plan = {"facts": lair.facts, "attacks": code, "at once": soak.random.random() < 0.4}
    (here.notebook / f"plan-{lair.number}.json").write_text(json.dumps(plan))
    result = await said_by(server, f"attack {lair.number}", f"attacker-{lair.number}", kernel=lair.kernel)
    assert SECRET not in result["text"], result["text"]
    if "SAID " not in result["text"]:
        soak.counts["runs that ended themselves"] += 1
        return
    said = json.loads(result["text"].split("SAID ", 1)[1].splitlines()[0])
    escaped = {name: words for name, words in said.items() if words.startswith("ESCAPED") and name not in UNSEEN}
    assert not escaped, escaped
    soak.counts["attacks"] += len(said)


async def be_greedy(server: AgentServer, soak: Soak) -> None:
    name = soak.random.choice(sorted(GREEDY))
    result = await said_by(server, name, f"greedy-{soak.random.randrange(2)}")
    assert result["status"] in ("success", "error", "timeout"), result
    soak.counts["greedy runs"] += 1


def surroundings(server: AgentServer) -> set[str]:
    """Return every path in the server's directory, except those of Jupyter and those below the work directories."""
    own = {server.directory / name for name in ("runtime", "ipython", "config")}
    found = set()
    for base, folders, files in os.walk(server.directory):
        if Path(base) in own or Path(base).parent == server.directory / "data" / "work":
            folders.clear()
            continue
        found |= {os.path.join(base, name) for name in (*folders, *files)}
    return found


async def climb(server: AgentServer, soak: Soak) -> None:
    """Use a session id and a notebook name that look like paths. Check that work directories, rows and sidecars stay in
    their places.
    """
    name = soak.random.choice(CLIMBING)
    before = surroundings(server)
    result = await said_by(server, "write", name)
    assert result["status"] == "success", result
    new = surroundings(server) - before
    assert all(Path(path).parent == server.directory / "data" / "work" for path in new), new
    async with server.client() as client:
        reply = await client.get(f"agent/v1/sessions/{quote(name, safe='')}/items")
        assert reply.status_code == (404 if name in (".", "..") else 200), (name, reply.text)
        soak.counts["session names that climb"] += 1
        notebook = f"{name}.ipynb"
        reply = await client.post(
            "api/sessions", json={"path": notebook, "name": "n", "type": "notebook", "kernel": {"name": "python3"}}
        )
        if reply.status_code != 201:
            return
        kernel = reply.json()["kernel"]["id"]
        await said_by(server, "write", f"of {name}"[:512], kernel=kernel)
        await asyncio.sleep(0.5)
        await client.delete(f"api/kernels/{kernel}")
    new = surroundings(server) - before
    inside = [server.directory / "data" / "work", server.root]
    assert all(any(Path(path).is_relative_to(one) for one in inside) for path in new), new
    soak.counts["notebook names that climb"] += 1


async def keep_inside(server: AgentServer) -> None:
    """Check that a notebook outside of the contents root, named by ``..``, gets no sidecar."""
    outside = server.directory / "outside.ipynb"
    outside.write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    async with server.client() as client:
        reply = await client.post(
            "api/sessions",
            json={"path": "../outside.ipynb", "name": "n", "type": "notebook", "kernel": {"name": "python3"}},
        )
        if reply.status_code != 201:
            return  # refused by Jupyter itself
        kernel = reply.json()["kernel"]["id"]
        started = await start_turn(client, "hello", kernel=kernel, where="sandbox")
        await followed(client, started["turn"])
    await asyncio.sleep(1.5)
    assert not (server.directory / "outside.agent.json").exists(), "a sidecar was written outside of the contents root"


async def facts_of(server: AgentServer, here: Scene, kernel: str) -> Json:
    """Return the true facts about the host that attacks are given."""
    said = await said_by(server, "other", OTHER.id)
    workdir = next(line for line in said["text"].splitlines() if line.startswith("AT "))[3:]
    async with server.client() as client:
        layers: dict[str, Any] = (await client.get("agent/v1/health")).json()["sandbox"]
    assert layers, "no sandbox here"
    return here.facts | {
        "server": server.process.pid if server.process else 0,
        "other": f"{workdir}/mine",
        "database": str(server.directory / "data" / "sessions.db"),
        "work_root": str(server.directory / "data" / "work"),
        "runtime": str(server.directory / "runtime" / f"kernel-{kernel}.json"),
        "shared": not layers.get("namespaces", layers.get("mounts", {})).get("active", False),
    }


@pytest.mark.soak(0.08)
async def test_attack_sandbox(soak: Soak, tmp_path: Path) -> None:
    base = tmp_path / "base"
    with (
        scene(base) as here,
        SceneServer(
            base, script(here.notebook), traits={"run_timeout_s": 8}, env={"AGENT_KERNEL_TEST_SECRET": SECRET}
        ) as server,
    ):
        await server.start()
        await soak_sandbox(soak, server, here)


async def soak_sandbox(soak: Soak, server: AgentServer, here: Scene) -> None:
    kernel = await server.start_kernel("nb.ipynb")
    facts = await facts_of(server, here, kernel)
    lairs = [Lair(number, kernel, facts) for number in range(SESSIONS)]
    soak.begin()
    while soak.running:
        await asyncio.gather(*(attack(server, here, lair, soak) for lair in lairs))
        await asyncio.gather(be_greedy(server, soak), climb(server, soak))
        assert here.untouched(), "something of the host has changed"
        async with server.client() as client:
            assert (await client.get("agent/v1/health")).json()["status"] == "ok"
        soak.counts["times that the host was untouched"] += 1
    await keep_inside(server)
    for sidecar in server.root.rglob("*.agent.json"):
        if (
            document := sidecar.read_bytes()
        ) != SECRET.encode():  # the scene has sidecars of its own, to be read by nobody
            parse(document)
    family = descendants(server.pid)
    assert await server.stop() == 0
    assert await survivors(family, 20) == [], "hostile code outlived the server"
