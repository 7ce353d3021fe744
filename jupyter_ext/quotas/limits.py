"""Applies the limits of each user on a shared server: turns per minute, concurrent turns, and tokens per hour and per
day. Also limits the length of the queue in front of an engine."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from agent_kernel.core.api_tokens import TOKEN_NAMESPACE_MARK
from agent_kernel.core.errors import AgentKernelError, BudgetSpent, EngineBusy, TooManyRequests
from agent_kernel.core.protocols import Engine
from agent_kernel.core.session import new_id
from agent_kernel.core.settings import Settings
from agent_kernel.engines.fair_queue import FairQueue
from agent_kernel.engines.model_slot import SlottedEngine, unwrap
from jupyter_ext.quotas.metered_engine import MeteredEngine
from jupyter_ext.quotas.request_rates import RequestRates
from jupyter_ext.quotas.spending_rows import DAY, HOUR, QuotaAccount
from jupyter_ext.quotas.token_spending import TokenSpending
from jupyter_ext.quotas.turn_slots import SOON_S, Counts, TurnSlots


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one account; 0 means no limit."""

    requests_per_minute: int = 0
    turns_at_once: int = 0
    tokens_per_hour: int = 0
    tokens_per_day: int = 0

    def share(self, share: float) -> Allowance:
        return Allowance(*(math.ceil(getattr(self, item.name) * share) for item in fields(self)))

    @property
    def has_budget(self) -> bool:
        return bool(self.tokens_per_hour or self.tokens_per_day)


class CountedStart:
    """A counted start of a turn. It counts towards the turns of the last minute, and holds one of the slots for
    unfinished turns. Call ``undo`` if no turn begins, and ``leave`` when the turn is over; repeated calls do
    nothing."""

    def __init__(self, limits: Limits, accounts: tuple[QuotaAccount, ...]) -> None:
        self._limits = limits
        self._accounts = accounts
        self._is_undone = self._has_left = False
        self.id = new_id("start")

    def undo(self) -> None:
        if not self._is_undone:
            self._is_undone = True
            self._limits.rates.take_back(self.id, self._limits.rate_limits(self._accounts))
        self.leave()

    def leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._limits.slots.give_back(self.id, self._limits.slot_limits(self._accounts))


class CountedTurn:
    """A turn that counts towards the limits. Call ``leave`` when it is over, or ``undo`` if it never began; repeated
    calls do nothing."""

    def __init__(self, limits: Limits, start: CountedStart, engine: Engine) -> None:
        self._limits = limits
        self._start = start
        self._engine = engine
        self.number = next(limits.numbers)
        self.counted = True
        self.in_line = True

    def on_queued(self) -> None:
        """Record that the turn's first model call is in the engine's queue. From now on the queue counts this call
        itself."""
        if self.in_line:
            self.in_line = False
            self._limits.expected[id(self._engine)] -= 1

    def leave(self) -> None:
        self.on_queued()
        if self.counted:
            self.counted = False
            self._start.leave()

    def undo(self) -> None:
        if self.counted:
            self._start.undo()
        self.leave()


class Limits:
    """The limits of one server; all of them are off by default. ``slots`` counts the concurrent turns, ``rates`` the
    starts of turns, and ``spending`` the tokens. These may be shared by several servers; the queues of engines are this
    server's."""

    def __init__(self, settings: Settings, spending: TokenSpending, rates: RequestRates, slots: TurnSlots) -> None:
        user = Allowance(
            settings.user_requests_per_minute,
            settings.user_turns_at_once,
            settings.user_tokens_per_hour,
            settings.user_tokens_per_day,
        )
        self._allowed = {False: user, True: user.share(settings.token_share)}
        self._slots, self._most_waiting = settings.turns_at_once, settings.turns_waiting
        self._spending = spending
        self.rates = rates
        self.slots = slots
        self._queues: dict[int, FairQueue] = {}
        self._taken: Counter[QuotaAccount] = Counter()
        self._call_ended = asyncio.Event()
        self.expected: Counter[int] = Counter()
        self.numbers: Iterator[int] = itertools.count(1)

    async def aclose(self) -> None:
        """Write the counts that are not written yet."""
        await self.rates.aclose()
        await self.slots.aclose()
        await self._spending.aclose()

    # ------------------------------------------------------------------------------------------------ turns

    async def check(self, namespace: str, token: str) -> None:
        """Check whether a turn could start now; counts nothing. Raises TooManyRequests, BudgetSpent, StoreError."""
        accounts = accounts_of(namespace, token)
        self._refuse_if_full(self.rates.peek(self.rate_limits(accounts)))
        self._refuse_if_running(self.slots.peek(self.slot_limits(accounts)))
        await self.check_budget(namespace, token)

    async def count_start(self, namespace: str, token: str) -> CountedStart:
        """Count the start of a turn, and take a slot for it. Raises TooManyRequests, and then counts nothing, and
        StoreError."""
        accounts = accounts_of(namespace, token)
        start = CountedStart(self, accounts)
        self._refuse_if_running(self.slots.peek(self.slot_limits(accounts)))
        try:
            self._refuse_if_full(await self.rates.count(start.id, self.rate_limits(accounts)))
        except asyncio.CancelledError:
            start.undo()  # the start may have been counted in spite of the error
            raise
        try:
            self._refuse_if_running(await self.slots.take(start.id, self.slot_limits(accounts)))
        except (AgentKernelError, asyncio.CancelledError):
            start.undo()
            raise
        return start

    def enter(self, engine: Engine, start: CountedStart) -> CountedTurn:
        """Count a started turn as a call that will wait in the queue of its engine. Raises EngineBusy, and then counts
        nothing."""
        self._check_line(engine)
        self.expected[id(engine)] += 1
        return CountedTurn(self, start, engine)

    @property
    def waiting(self) -> int:
        """The number of model calls that wait for their engine."""
        return sum(queue.waiting for queue in set(self._queues.values()))

    def rate_limits(self, accounts: Sequence[QuotaAccount]) -> dict[QuotaAccount, int]:
        return {account: self.allowance(account).requests_per_minute for account in accounts}

    def slot_limits(self, accounts: Sequence[QuotaAccount]) -> dict[QuotaAccount, int]:
        return {account: self.allowance(account).turns_at_once for account in accounts}

    def _refuse_if_full(self, counts: Counts) -> None:
        for account, count in counts.items():
            if count.wait_s:
                limit = self.allowance(account).requests_per_minute
                raise TooManyRequests(
                    f"{account_label(account)} has started {count.number} turns in the last minute; "
                    f"{limit} are allowed.",
                    hint=f"Ask again in {math.ceil(count.wait_s)} s.",
                    details=limit_details("user_requests_per_minute", limit, count.number, count.wait_s),
                )

    def _refuse_if_running(self, counts: Counts) -> None:
        for account, count in counts.items():
            if count.wait_s:
                limit = self.allowance(account).turns_at_once
                raise TooManyRequests(
                    f"{account_label(account)} has {count.number} unfinished turns; {limit} are allowed at once.",
                    hint="Wait for one of them, or stop one.",
                    details=limit_details("user_turns_at_once", limit, count.number, count.wait_s),
                )

    def _check_line(self, engine: Engine) -> None:
        waiting = self.queue(engine).waiting_for(unwrap(engine)) + self.expected[id(engine)]
        if self._slots and self._most_waiting and waiting >= self._most_waiting:
            raise EngineBusy(
                f"{waiting} turns are already waiting for {engine.info().model}; no more are accepted.",
                hint="Ask again in a moment.",
                details=limit_details("turns_waiting", self._most_waiting, waiting, SOON_S),
            )

    # ------------------------------------------------------------------------------------------------ tokens

    async def check_budget(self, namespace: str, token: str) -> dict[QuotaAccount, int]:
        """Return the number of tokens left to each account that has a budget. Raises BudgetSpent, StoreError."""
        left: dict[QuotaAccount, int] = {}
        for account in accounts_of(namespace, token):
            allowed = self.allowance(account)
            if not allowed.has_budget:
                continue
            spent = await self._spending.spent_by(account)
            await self._check_spent(account, "hour", spent.hour, allowed.tokens_per_hour, HOUR)
            await self._check_spent(account, "day", spent.day, allowed.tokens_per_day, DAY)
            windows = ((allowed.tokens_per_hour, spent.hour), (allowed.tokens_per_day, spent.day))
            left[account] = min(limit - used for limit, used in windows if limit)
        return left

    @asynccontextmanager
    async def within_budget(self, namespace: str, token: str, tokens: int) -> AsyncGenerator[None, None]:
        """Reserve about ``tokens`` tokens of the budget for one model call, which is the body of the ``with``
        statement.

        If the running calls may use up the rest of the budget, this waits until they end, so that at most the last call
        exceeds the budget. Raises BudgetSpent, StoreError."""
        while True:
            changed = self._call_ended
            left = await self.check_budget(namespace, token)
            if changed is not self._call_ended:
                continue  # the spending may have changed while this waited
            taken = self._taken
            if all(not taken[account] or taken[account] + tokens <= rest for account, rest in left.items()):
                break
            await changed.wait()
        self._taken.update(dict.fromkeys(left, tokens))
        try:
            yield
        finally:
            self._taken.subtract(dict.fromkeys(left, tokens))
            self._taken = +self._taken
            ended, self._call_ended = self._call_ended, asyncio.Event()
            ended.set()

    async def _check_spent(self, account: QuotaAccount, window: str, spent: int, limit: int, minutes: int) -> None:
        if not limit or spent < limit:
            return
        wait = await self._spending.seconds_until_below(account, minutes, limit)
        raise BudgetSpent(
            f"{account_label(account)} has spent {spent} tokens in the last {window}; {limit} are allowed.",
            hint=f"Tokens are available again in {format_span(wait)}.",
            details=limit_details(f"user_tokens_per_{window}", limit, spent, wait),
        )

    def charge(self, namespace: str, token: str, tokens: int) -> None:
        accounts = [account for account in accounts_of(namespace, token) if self.allowance(account).has_budget]
        self._spending.charge(accounts, tokens)

    # ------------------------------------------------------------------------------------------------ engines

    def queue(self, engine: Engine) -> FairQueue:
        """Return the queue of the engine. The local models of this machine share one queue. ``NamedEngines`` returns
        the same object for the same engine each time, so an engine keeps its queue."""
        if id(engine) not in self._queues:
            self._queues[id(engine)] = engine.queue if isinstance(engine, SlottedEngine) else FairQueue(self._slots)
        return self._queues[id(engine)]

    def meter(self, engine: Engine, namespace: str, token: str, entry: CountedTurn | None = None) -> Engine:
        """Return the engine wrapped for this user: each call waits in the fair queue and is charged to the budget."""
        number = entry.number if entry else next(self.numbers)
        arrived = entry.on_queued if entry else lambda: None
        return MeteredEngine(
            engine,
            lambda request: self.queue(engine).stream(unwrap(engine), request, user_of(namespace), number, arrived),
            budget=lambda tokens: self.within_budget(namespace, token, tokens),
            spent=lambda tokens: self.charge(namespace, token, tokens),
        )

    # ------------------------------------------------------------------------------------------------ state

    def allowance(self, account: QuotaAccount) -> Allowance:
        return self._allowed[bool(account.token)]

    async def state(self, namespace: str, token: str = "") -> dict[str, Any]:
        """Return the limits as JSON: for each limit, the numbers ``allowed`` (0 = no limit) and ``used``, for the user
        and, if given, for ``token``. Tokens are counted only where there is a budget. Raises StoreError."""
        accounts = accounts_of(namespace, token)
        started = await self.rates.read(self.rate_limits(accounts))
        running = await self.slots.read(self.slot_limits(accounts))
        rows = [await self._state(account, started[account].number, running[account].number) for account in accounts]
        return {"user": user_of(namespace), **rows[0], "token": {"id": token, **rows[1]} if token else None}

    async def _state(self, account: QuotaAccount, started: int, running: int) -> dict[str, Any]:
        allowed = self.allowance(account)
        spent = asdict(await self._spending.spent_by(account)) if allowed.has_budget else {"hour": None, "day": None}
        return {
            "requests_per_minute": {"allowed": allowed.requests_per_minute, "used": started},
            "turns_at_once": {"allowed": allowed.turns_at_once, "used": running},
            "tokens_per_hour": {"allowed": allowed.tokens_per_hour, "used": spent["hour"]},
            "tokens_per_day": {"allowed": allowed.tokens_per_day, "used": spent["day"]},
        }


def accounts_of(namespace: str, token: str) -> tuple[QuotaAccount, ...]:
    """Return the accounts that a request counts towards: the account of the user and, if ``token`` is not empty, the
    account of the API token with this id. This holds even if the token has a namespace of its own."""
    user = user_of(namespace)
    return (QuotaAccount(user), QuotaAccount(user, token)) if token else (QuotaAccount(user),)


def user_of(namespace: str) -> str:
    return namespace.partition(TOKEN_NAMESPACE_MARK)[0]


def account_label(account: QuotaAccount) -> str:
    return "This token" if account.token else "This user"


def limit_details(limit: str, allowed: int, used: int, wait: float) -> dict[str, Any]:
    return {"limit": limit, "allowed": allowed, "used": used, "retry_after_s": math.ceil(wait)}


def format_span(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{math.ceil(minutes / 60)} h"
