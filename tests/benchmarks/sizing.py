"""The figures of docs/sizing.md: ``python -m tests.benchmarks.sizing [turns|appends|memory|streams ...]``.

Servers are real ones with the scripted engine, so everything except the model is measured; the databases are a SQLite
file, and the PostgreSQL of the wheel pgserver. All processes share the processor of the machine. Seconds of processor
time are those of the server's process alone.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psycopg

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.store_url import open_store
from tests.benchmarks.test_turn_overhead import cpu_s
from tests.narrowing import not_none
from tests.served import Served
from tests.server import PLAIN, ROOT, Json, follow, followed, start_turn
from tests.sessions.log.servers import Postgres
from tests.soak.server_state import memory_mb

SECONDS = 10.0
CLIENTS = 16
DRAW = random.Random(0)
ANSWER = "".join(f"{DRAW.randrange(16**4):04x} " for _ in range(200))
"""The answer of each measured turn, 1,000 characters in 20 pieces that databases can compress little."""
SCRIPT: list[Json] = [
    {"text": "word " * 600, "deltas": 600, "delay": 0.05, "when": "live", "loop": True},
    {"text": ANSWER, "deltas": 20, "loop": True},
]
SESSIONS, TURNS_EACH = 2_000, 10
STREAMS = (1, 50, 100)


def serve(directory: Path, name: str, store: str, running: ExitStack) -> Served:
    made = Served(directory / name, SCRIPT, ("--no-shared",), {"AGENT_KERNEL_STORE": store})
    running.callback(made.sweep)
    return made.start()


def client_of(server: Served) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {server.token}"}
    return httpx.AsyncClient(base_url=server.url + "/", headers=headers, timeout=60, limits=httpx.Limits(), **PLAIN)


def pid_of(server: Served) -> int:
    return not_none(server.process).pid


def stored_bytes(store: str, directory: Path) -> int:
    """Return the size of the stored sessions in bytes, with indexes."""
    if store == "sqlite":
        return sum(path.stat().st_size for path in directory.glob("data/sessions.db*") if "reserve" not in path.name)
    with psycopg.connect(store) as database:
        tables = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
        row = database.execute(tables + "current_schema()::regnamespace").fetchone()
    return int(not_none(row)[0])


async def take_turns(server: Served, name: str, clients: int, seconds: float = SECONDS) -> int:
    """Run turns one after the other in each of ``clients`` sessions, follow each to its end, and return the number of
    turns.
    """
    until, done = time.monotonic() + seconds, 0

    async def one(number: int) -> None:
        nonlocal done
        async with client_of(server) as client:
            while time.monotonic() < until:
                turn = await start_turn(client, "hello", session=f"{name}-{number}")
                await followed(client, turn["turn"])
                done += 1

    await asyncio.gather(*(one(number) for number in range(clients)))
    return done


async def measure_turns(directory: Path, postgres: Postgres) -> None:
    for store, servers in (("sqlite", 1), ("postgresql", 1), ("postgresql", 2)):
        url = "sqlite" if store == "sqlite" else postgres.fresh()
        with ExitStack() as running:
            made = [serve(directory, f"turns-{store}-{servers}-{number}", url, running) for number in range(servers)]
            warm = sum([await take_turns(server, f"warm-{server.directory.name}", 1, 1.0) for server in made])
            cpu = sum(cpu_s(pid_of(server)) for server in made)
            each = CLIENTS // servers
            counts = await asyncio.gather(*(take_turns(server, f"s{at}", each) for at, server in enumerate(made)))
            cpu = sum(cpu_s(pid_of(server)) for server in made) - cpu
            for server in made:
                server.stop()
            turns, size = sum(counts), stored_bytes(url, made[0].directory)
            print(
                f"{store}, {servers} server(s), {CLIENTS} clients: {turns / SECONDS:.0f} turns/s,"
                f" {1000 * cpu / turns:.1f} ms of processor time and {size / (turns + warm):,.0f} bytes stored a turn"
            )


async def measure_streams(directory: Path, postgres: Postgres) -> None:
    """Measure the processor time of a server for turns that emit 20 words a second to one follower each."""
    with ExitStack() as running:
        server = serve(directory, "streams", postgres.fresh(), running)
        for streams in STREAMS:
            async with client_of(server) as client:

                async def read(number: int, client: httpx.AsyncClient = client) -> int:
                    events, turn = 0, (await start_turn(client, "live", session=f"live-{number}"))["turn"]
                    until = time.monotonic() + SECONDS
                    async for _ in follow(client, turn):
                        events += 1
                        if time.monotonic() > until:
                            break
                    await client.post(f"agent/v1/turns/{turn}/cancel", json={})
                    return events

                cpu, began = cpu_s(pid_of(server)), time.monotonic()
                events = sum(await asyncio.gather(*(read(number) for number in range(streams))))
                took, cpu = time.monotonic() - began, cpu_s(pid_of(server)) - cpu
                rate = events / streams / SECONDS
                print(f"{streams} streams: {rate:.1f} events/s each, {100 * cpu / took:.0f} % of a core")


def measure_appends(postgres: Postgres) -> None:
    for writers in (1, 2, 4):
        url = postgres.fresh()
        command = [sys.executable, "-m", "tests.benchmarks.sizing", "write", url]
        processes = [
            subprocess.Popen([*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            for number in range(writers)
        ]
        counts = [int(process.communicate()[0]) for process in processes]
        print(f"{writers} writer(s): {sum(counts) / SECONDS:.0f} appends/s of a question and an answer")


async def write(url: str, name: str) -> None:
    """Append to one session for SECONDS, and print the number of appends."""
    store, key, count = open_store(url), SessionKey("local", f"s{name}"), 0
    await store.add_messages(key, [user("begin")])
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        await store.add_messages(key, [user("q" * 200), assistant("a" * 1000)])
        count += 1
    await store.aclose()
    print(count)


async def measure_memory(directory: Path, postgres: Postgres) -> None:
    for name in ("sqlite", "postgresql"):
        url = name if name == "sqlite" else postgres.fresh()
        with ExitStack() as running:
            server = serve(directory, f"memory-{name}", url, running)
            empty = memory_mb(pid_of(server))
            server.stop()
            await fill(f"sqlite:{server.directory / 'data' / 'sessions.db'}" if name == "sqlite" else url)
            began = time.monotonic()
            server.start()
            async with client_of(server) as client:
                (await client.get("agent/v1/sessions")).raise_for_status()
            took, full = time.monotonic() - began, memory_mb(pid_of(server))
            size = stored_bytes(url, server.directory)
            print(
                f"{name}: {empty:.0f} MB empty, {full:.0f} MB with {SESSIONS:,} sessions of {TURNS_EACH} turns"
                f" ({1000 * (full - empty) / SESSIONS:.1f} kB a session), started in {took:.1f} s;"
                f" {size / SESSIONS / TURNS_EACH:,.0f} bytes stored a turn"
            )


async def fill(url: str) -> None:
    store = open_store(url)
    for number in range(SESSIONS):
        texts = ["".join(f"{DRAW.randrange(16**4):04x} " for _ in range(240)) for _ in range(TURNS_EACH)]
        turns = [message for text in texts for message in (user(text[:200]), assistant(text[200:]))]
        await store.add_messages(SessionKey("local", f"s{number}"), turns)
    await store.aclose()


@contextmanager
def places() -> Iterator[tuple[Path, Postgres]]:
    with tempfile.TemporaryDirectory(prefix="agent-kernel-sizing-") as directory:
        postgres = Postgres(Path(directory) / "postgresql")
        try:
            yield Path(directory), postgres
        finally:
            postgres.stop()


async def main(wanted: Sequence[str]) -> None:
    with places() as (directory, postgres):
        if "turns" in wanted:
            await measure_turns(directory, postgres)
        if "streams" in wanted:
            await measure_streams(directory, postgres)
        if "appends" in wanted:
            await asyncio.to_thread(measure_appends, postgres)
        if "memory" in wanted:
            await measure_memory(directory, postgres)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        asyncio.run(write(*sys.argv[2:]))
    else:
        asyncio.run(main(sys.argv[1:] or ("turns", "streams", "appends", "memory")))
