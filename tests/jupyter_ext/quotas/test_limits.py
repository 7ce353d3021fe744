"""Tests the limits of each user: a turn counts once, on every route, and never for another user."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import AgentKernelError, BudgetSpent, EngineBusy, SessionBusy, TooManyRequests
from agent_kernel.core.events import Queued, TurnFinished
from agent_kernel.core.messages import user as said
from agent_kernel.core.protocols import EngineRequest, WaitChunk
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.core.settings import SHARED_SERVER_LIMITS, Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.registry import NamedEngines
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.database import Database
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.quotas.limits import Limits
from jupyter_ext.quotas.request_rates import LocalRates
from jupyter_ext.quotas.spending_rows import DatabaseSpending, QuotaAccount
from jupyter_ext.quotas.token_spending import TokenSpending
from jupyter_ext.quotas.turn_slots import LocalSlots
from jupyter_ext.turns.server_state import open_server_db
from jupyter_ext.turns.turns import LiveTurn, Turns, TurnSpec
from tests.narrowing import instance_of, not_none
from tests.turns import CancelledAt

HELLO = {"text": "Hello there.", "loop": True}
HANG = {"text": "It begins", "fault": "hang", "when": "hang", "loop": True}
FAIL = {"text": "", "fault": "nothing works", "when": "fail", "loop": True}
PYTHON = {"text": "", "calls": [{"name": "python", "arguments": {"code": "1"}}], "when": "code"}


class Clock:
    def __init__(self) -> None:
        self.now = 10_000_020.0

    def __call__(self) -> float:
        return self.now


class Server:
    """A scripted engine that runs turns with limits."""

    def __init__(self, tmp_path: Path, script: Any = (PYTHON, HANG, FAIL, HELLO), **limits: Any) -> None:
        path = tmp_path / "script.json"
        path.write_text(json.dumps(list(script)))
        self.settings = Settings(
            engine="scripted", script=str(path), store="memory", data_dir=tmp_path, tools="python", **limits
        )
        self.clock = Clock()
        self.records = open_server_db(None)
        self.runtime = Runtime.build(self.settings)
        spending = TokenSpending(DatabaseSpending(self.records), self.clock)
        self.limits = Limits(self.settings, spending, LocalRates(self.clock), LocalSlots())
        self.turns = Turns(self.runtime, self.limits)
        self._sessions = 0

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *gone: object) -> None:
        await self.turns.aclose()
        await self.runtime.aclose()
        await self.limits.aclose()
        await self.records.aclose()

    def order(self, prompt: str = "hello", user: str = "ada", token: str = "", session: str = "") -> TurnSpec:
        self._sessions += 1
        return TurnSpec(SessionKey(user, session or f"s{self._sessions}"), TurnRequest(prompt), token=token)

    async def start(self, prompt: str = "hello", **about: str) -> LiveTurn:
        return await self.turns.start(self.order(prompt, **about))

    async def end(self, prompt: str = "hello", **about: str) -> TurnFinished:
        """Start a turn and return its last event."""
        return await ended(await self.start(prompt, **about))

    async def state(self, user: str = "ada", token: str = "") -> dict[str, Any]:
        return await self.limits.state(user, token)


async def ended(turn: LiveTurn) -> TurnFinished:
    await asyncio.wait([not_none(turn.task)])
    return not_none(turn.log.finished)


def spent(end: TurnFinished) -> int:
    return int(end.usage["prompt_tokens"] + end.usage["completion_tokens"])


# ---------------------------------------------------------------------------------------------------- requests


async def test_a_user_begins_so_many_turns_in_any_minute_and_no_more(tmp_path: Path) -> None:
    async with Server(tmp_path, user_requests_per_minute=2) as server:
        await server.end()
        server.clock.now += 40
        await server.end()
        with pytest.raises(TooManyRequests, match=r"2 are allowed.*Ask again in 20 s") as refused:
            await server.start()
        assert refused.value.details["retry_after_s"] == 20
        await server.end(user="bob")
        server.clock.now += 20
        await server.end()
        with pytest.raises(TooManyRequests):
            await server.start()


async def test_what_was_refused_does_not_count(tmp_path: Path) -> None:
    async with Server(tmp_path, user_requests_per_minute=2) as server:
        running = await server.start("hang", session="one")
        with pytest.raises(SessionBusy):
            await server.turns.start(server.order(session="one"), queue=False)
        assert (await server.state())["requests_per_minute"] == {"allowed": 2, "used": 1}
        await server.end()
        for _ in range(3):
            with pytest.raises(TooManyRequests):
                await server.start()
        assert (await server.state())["requests_per_minute"]["used"] == 2
        await server.turns.cancel(running, "enough")


async def test_a_turn_that_another_server_forbade_is_given_back(tmp_path: Path) -> None:
    async with Server(tmp_path, user_requests_per_minute=5, user_turns_at_once=5) as server:
        key = SessionKey("ada", "busy")
        await server.runtime.store.create(key)
        async with await server.runtime.turn_writer.begin(Turn("turn_elsewhere", key)):
            with pytest.raises(SessionBusy):
                await server.turns.start(server.order(session="busy"), queue=False)
        state = await server.state()
        assert (state["requests_per_minute"]["used"], state["turns_at_once"]["used"]) == (0, 0)


async def test_turns_that_are_not_over_are_counted_and_their_end_makes_room(tmp_path: Path) -> None:
    async with Server(tmp_path, user_turns_at_once=2) as server:
        first, _ = await server.start("hang"), await server.start("hang")
        with pytest.raises(TooManyRequests, match="unfinished turns"):
            await server.start()
        await server.end(user="bob")
        await server.turns.cancel(first, "enough")
        await server.end()


@pytest.mark.parametrize("ending", ["fail", "hello", "hang"])
async def test_every_end_of_a_turn_gives_its_place_back(tmp_path: Path, ending: str) -> None:
    async with Server(tmp_path, user_turns_at_once=1, turns_at_once=1) as server:
        for _ in range(3):
            turn = await server.start(ending)
            if ending == "hang":
                await asyncio.sleep(0)
                await server.turns.cancel(turn, "enough")
            await ended(turn)
        assert (await server.state())["turns_at_once"]["used"] == 0
        assert server.limits.queue(server.runtime.engines.get()).in_use == 0
        assert not +server.limits.expected


# ---------------------------------------------------------------------------------------------------- tokens


async def test_a_budget_is_spent_by_exactly_what_the_model_calls_cost(tmp_path: Path) -> None:
    async with Server(tmp_path, user_tokens_per_hour=40) as server:
        total = 0
        while total < 40:
            total += (cost := spent(await server.end()))
            assert cost > 0
            assert (await server.state())["tokens_per_hour"] == {"allowed": 40, "used": total}
        with pytest.raises(BudgetSpent, match=f"{total} tokens in the last hour; 40 are allowed"):
            await server.start()
        await server.end(user="bob")
        assert (await server.state("bob"))["tokens_per_hour"]["used"] < 40


@pytest.mark.parametrize("slots", [0, 2])
async def test_calls_that_run_at_once_do_not_go_over_a_budget_by_more_than_the_last_one(
    tmp_path: Path, slots: int
) -> None:
    slow = {"text": "one two three", "deltas": 3, "delay": 0.001, "loop": True}
    async with Server(tmp_path, [slow], user_tokens_per_hour=60, turns_at_once=slots) as server:
        turns = []
        with contextlib.suppress(BudgetSpent):
            for _ in range(30):
                turns.append(await server.start())
        ends = [await ended(turn) for turn in turns]
        costs = {spent(end) for end in ends if end.state == "committed"}
        assert len(costs) == 1
        cost = costs.pop()
        assert sum(end.state == "committed" for end in ends) == -(-60 // cost)
        assert {(end.error or {}).get("code") for end in ends if end.state == "failed"} <= {"budget_spent"}
        assert len(ends) < 30 or "failed" in {end.state for end in ends}


async def test_a_budget_comes_back_when_its_window_is_over_and_it_is_said_when(tmp_path: Path) -> None:
    async with Server(tmp_path, user_tokens_per_hour=5, user_tokens_per_day=1_000) as server:
        await server.end()
        with pytest.raises(BudgetSpent) as refused:
            await server.start()
        server.clock.now += refused.value.details["retry_after_s"] - 1
        with pytest.raises(BudgetSpent):
            await server.start()
        server.clock.now += 1
        await server.end()
        state = await server.state()
        assert state["tokens_per_day"]["used"] == 2 * state["tokens_per_hour"]["used"]


async def test_a_turn_of_many_rounds_stops_where_the_budget_ends(tmp_path: Path) -> None:
    async with Server(tmp_path, user_tokens_per_hour=1) as server:
        end = await server.end("code")
        assert end.state == "failed"
        assert not_none(end.error)["code"] == "budget_spent"
        assert len(instance_of(ScriptedEngine, server.runtime.engine).requests) == 1


async def test_a_call_that_was_cut_off_costs_what_it_had_said(tmp_path: Path) -> None:
    async with Server(tmp_path, user_tokens_per_hour=1_000) as server:
        turn = await server.start("hang")
        while turn.log.head < 3:
            await asyncio.sleep(0)
        await server.turns.cancel(turn, "enough")
        assert (await server.state())["tokens_per_hour"]["used"] > 0
        assert (await server.end("fail", user="bob")).state == "failed"
        assert (await server.state("bob"))["tokens_per_hour"]["used"] == 0


async def test_budgets_last_over_a_restart_and_are_shared_by_servers_of_one_directory(tmp_path: Path) -> None:
    clock, ada = Clock(), QuotaAccount("ada")
    first, second = (open_server_db(tmp_path / "requests.db") for _ in range(2))
    one, other = TokenSpending(DatabaseSpending(first), clock), TokenSpending(DatabaseSpending(second), clock)
    one.charge([ada, QuotaAccount("ada", "t")], 7)
    other.charge([ada], 5)
    await one.aclose()
    await other.aclose()
    assert (await one.spent_by(ada)).hour == (await other.spent_by(ada)).hour == 12
    await first.aclose()
    await second.aclose()
    third = open_server_db(tmp_path / "requests.db")
    assert (await TokenSpending(DatabaseSpending(third), clock).spent_by(ada)).day == 12
    assert (await TokenSpending(DatabaseSpending(third), clock).spent_by(QuotaAccount("ada", "t"))).day == 7
    await third.aclose()
    assert (tmp_path / "requests.db").stat().st_mode & 0o077 == 0


async def test_tokens_are_counted_also_while_they_can_not_be_written(tmp_path: Path) -> None:
    database = open_server_db(tmp_path / "requests.db")
    spending = TokenSpending(DatabaseSpending(database), Clock())
    (tmp_path / "requests.db").mkdir()
    spending.charge([QuotaAccount("ada")], 3)
    await spending.aclose()
    (tmp_path / "requests.db").rmdir()
    assert (await spending.spent_by(QuotaAccount("ada"))).hour == 3
    spending.charge([QuotaAccount("ada")], 4)
    await spending.aclose()
    assert (await TokenSpending(DatabaseSpending(database), Clock()).spent_by(QuotaAccount("ada"))).hour == 7
    await database.aclose()


async def test_what_is_older_than_a_day_is_taken_away(tmp_path: Path) -> None:
    clock, database = Clock(), open_server_db(tmp_path / "requests.db")
    for _ in range(3):
        spending = TokenSpending(DatabaseSpending(database), clock)
        spending.charge([QuotaAccount("ada")], 1)
        await spending.aclose()
        clock.now += 24 * 3600
    assert await _rows(database) == 1
    await database.aclose()


async def _rows(database: Database) -> int:
    return await database.read(lambda connection: int(connection.execute("SELECT count(*) FROM spent").fetchone()[0]))


# ---------------------------------------------------------------------------------------------------- who


async def test_what_a_scoped_token_uses_counts_for_its_user_and_it_gets_a_share_only(tmp_path: Path) -> None:
    async with Server(tmp_path, user_requests_per_minute=4, token_share=0.5, user_tokens_per_day=1_000) as server:
        own = "ada/tokens/job"  # the namespace of a token without the scope ``sessions``
        end = [await server.end(user=own, token="t1"), await server.end(user=own, token="t1")][-1]
        with pytest.raises(TooManyRequests, match="This token"):
            await server.start(user=own, token="t1")
        await server.end()
        await server.end(user="ada/tokens/other", token="t2")
        with pytest.raises(TooManyRequests, match="This user"):
            await server.start(user="ada/tokens/other", token="t2")
        state = await server.state(own, "t1")
        assert state["user"] == "ada"
        assert state["requests_per_minute"] == {"allowed": 4, "used": 4}
        assert state["token"]["requests_per_minute"] == {"allowed": 2, "used": 2}
        assert state["tokens_per_day"] == {"allowed": 1_000, "used": 4 * spent(end)}
        assert state["token"]["tokens_per_day"] == {"allowed": 500, "used": 2 * spent(end)}


async def test_a_person_alone_has_no_limits_and_nothing_is_written(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        await asyncio.gather(*(server.end() for _ in range(20)))
        state = await server.state()
        assert {row["allowed"] for name, row in state.items() if name not in ("user", "token")} == {0}
        assert await _rows(server.records) == 0


# ---------------------------------------------------------------------------------------------------- the engine


async def test_a_turn_that_waits_says_so_and_can_be_stopped(tmp_path: Path) -> None:
    async with Server(tmp_path, turns_at_once=1) as server:
        holds = await server.start("hang")
        waits = await server.start(user="bob")
        while not any(isinstance(event.body, Queued) for event in waits.log.since(0)):
            await asyncio.sleep(0)
        assert [event.body for event in waits.log.since(0)][-1] == Queued(1, "others use the engine")
        await server.turns.cancel(waits, "enough")
        assert waits.state == "cancelled"
        third = await server.start(user="bob")
        await server.turns.cancel(holds, "enough")
        assert (await ended(third)).state == "committed"


async def test_when_too_many_wait_no_more_are_taken(tmp_path: Path) -> None:
    async with Server(tmp_path, turns_at_once=1, turns_waiting=2) as server:
        await server.start("hang")
        while not server.limits.queue(server.runtime.engines.get()).in_use:
            await asyncio.sleep(0)
        waiting = [await server.start() for _ in range(2)]
        with pytest.raises(EngineBusy, match="2 turns are already waiting") as refused:
            await server.start(user="bob")
        assert refused.value.details["retry_after_s"] >= 1
        await server.turns.cancel(waiting[0], "enough")
        await server.start(user="bob")


async def test_a_person_who_is_asked_holds_no_slot(tmp_path: Path) -> None:
    async with Server(tmp_path, turns_at_once=1, permission="ask") as server:
        order = server.order("code")
        asked = await server.turns.start(
            TurnSpec(order.key, TurnRequest("code", answers=frozenset("*"), permission="ask")), queue=True
        )
        while "approval.required" not in [event.body.type for event in asked.log.since(0)]:
            await asyncio.sleep(0.01)
            assert asked.running
        assert (await server.end(user="bob")).state == "committed"
        await server.turns.cancel(asked, "enough")


async def test_no_slot_and_no_place_is_lost_wherever_a_turn_is_cancelled(tmp_path: Path) -> None:
    async with Server(tmp_path, turns_at_once=1, user_turns_at_once=1, user_tokens_per_hour=10_000) as server:
        engine = server.runtime.engines.get()
        stopped = 0
        for n in range(1, 60):
            key = SessionKey("ada", f"n{n}")
            entry = server.limits.enter(engine, await server.limits.count_start("ada", ""))
            agent = server.runtime.agent(
                key,
                TurnRequest("hello"),
                through=lambda engine, entry=entry: server.limits.meter(engine, "ada", "", entry),  # type: ignore[misc]
            )
            task = asyncio.create_task(CancelledAt(agent.turn(TurnRequest("hello"), lambda body: None), n).run())
            await asyncio.wait([task])
            entry.leave()
            stopped += task.cancelled()
            assert server.limits.queue(engine).in_use == 0
            assert server.limits.queue(engine).waiting == 0
            assert (await server.state())["turns_at_once"]["used"] == 0
            if not task.cancelled():
                break
        assert 3 < stopped < 59
        assert (await server.end()).state == "committed"


def test_limits_of_shared_servers_are_settings() -> None:
    settings = Settings(**SHARED_SERVER_LIMITS)  # type: ignore[arg-type]
    assert settings.turns_at_once == SHARED_SERVER_LIMITS["turns_at_once"]


@pytest.mark.parametrize("name", [*SHARED_SERVER_LIMITS, "turns_waiting", "token_share"])
def test_a_limit_that_makes_no_sense_is_refused_by_name(name: str) -> None:
    with pytest.raises(AgentKernelError, match=name):
        Settings(**{name: -1})  # type: ignore[arg-type]


async def test_a_position_counts_the_calls_of_other_models_and_never_rises(tmp_path: Path) -> None:
    """One model of this machine is in memory at a time, so its calls begin before those of the next."""
    models = {"one": {"model": "one"}, "two": {"model": "two"}}
    settings = Settings(engine="scripted", store="memory", data_dir=tmp_path, turns_at_once=1, engines=models)
    slow = {"text": "abcd", "deltas": 4, "delay": 0.02, "loop": True}
    engines = NamedEngines(settings, ScriptedEngine([slow]), lambda own: ScriptedEngine([slow]))
    records = open_server_db(None)
    limits = Limits(settings, TokenSpending(DatabaseSpending(records)), LocalRates(), LocalSlots())

    async def positions(user: str, model: str) -> list[int]:
        async with aclosing(limits.meter(engines.get(model), user, "").stream(EngineRequest((said("x"),)))) as chunks:
            return [chunk.position async for chunk in chunks if isinstance(chunk, WaitChunk) and chunk.position]

    asked = (("ada", "one"), ("bob", "one"), ("cleo", "two"), ("dan", "two"))
    told = await asyncio.gather(*(positions(user, model) for user, model in asked))
    assert told == [[], [1], [2, 1], [3, 2, 1]]
    assert limits.waiting == 0
    await limits.aclose()
    await records.aclose()
