"""What each user may ask of a server that several use: turns begun in a minute, turns at once, tokens of an hour and of
a day; and how long the line before an engine gets."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from agent_kernel.core.api_tokens import TOKEN_NAMESPACE_MARK
from agent_kernel.core.errors import BudgetSpent, EngineBusy, TooManyRequests
from agent_kernel.core.protocols import Engine
from agent_kernel.core.settings import Settings
from jupyter_ext.quotas.fair_queue import FairQueue
from jupyter_ext.quotas.metered_engine import Metered
from jupyter_ext.quotas.token_usage import DAY, HOUR, Account, Spending

MINUTE_S = 60.0
SOON_S = 2.0
"""When to ask again, where nobody can know."""
MANY = 1_000
"""Accounts; beyond that those that asked nothing for a minute are forgotten."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one account; 0 = no limit."""

    requests_per_minute: int = 0
    turns_at_once: int = 0
    tokens_per_hour: int = 0
    tokens_per_day: int = 0

    def share(self, share: float) -> Allowance:
        return Allowance(*(math.ceil(getattr(self, item.name) * share) for item in fields(self)))

    @property
    def budgets(self) -> bool:
        return bool(self.tokens_per_hour or self.tokens_per_day)


class Entry:
    """A turn that was let in. ``leave`` when it is over, ``undo`` if it never began; both may come again."""

    def __init__(self, limits: Limits, accounts: tuple[Account, ...], began: float, engine: Engine) -> None:
        self._limits = limits
        self._accounts = accounts
        self._began = began
        self._engine = engine
        self.number = next(limits.numbers)
        self.inside = True
        self.in_line = True

    def arrived(self) -> None:
        """Its first model call stands in the line before the engine, and counts there from now on."""
        if self.in_line:
            self.in_line = False
            self._limits.expected[id(self._engine)] -= 1

    def leave(self) -> None:
        self.arrived()
        if self.inside:
            self.inside = False
            self._limits.running.subtract(self._accounts)

    def undo(self) -> None:
        if self.inside:
            self._limits.take_back(self._accounts, self._began)
        self.leave()


class Limits:
    """Of one server; all of it is off by default. Requests and turns are counted here, tokens in ``spending``."""

    def __init__(self, settings: Settings, spending: Spending, clock: Callable[[], float] = time.monotonic) -> None:
        user = Allowance(
            settings.user_requests_per_minute,
            settings.user_turns_at_once,
            settings.user_tokens_per_hour,
            settings.user_tokens_per_day,
        )
        self._allowed = {False: user, True: user.share(settings.token_share)}
        self._slots, self._most_waiting = settings.turns_at_once, settings.turns_waiting
        self._spending = spending
        self._clock = clock
        self._began: dict[Account, deque[float]] = {}
        self._queues: dict[int, FairQueue] = {}
        self._taken: Counter[Account] = Counter()
        self._call_ended = asyncio.Event()
        self.expected: Counter[int] = Counter()
        self.running: Counter[Account] = Counter()
        self.numbers: Iterator[int] = itertools.count(1)

    async def aclose(self) -> None:
        """What was spent is on the disk."""
        await self._spending.aclose()

    # ------------------------------------------------------------------------------------------------ turns

    async def check(self, namespace: str, token: str) -> None:
        """Whether a turn could begin now; counts nothing. Raises TooManyRequests, StoreError."""
        now = self._clock()
        for account in accounts_of(namespace, token):
            self._check_rate(account, now)
            self._check_running(account)
        await self.check_budget(namespace, token)

    def enter(self, namespace: str, token: str, engine: Engine) -> Entry:
        """Lets a turn in and counts it, or counts nothing. Raises TooManyRequests, EngineBusy."""
        accounts, now = accounts_of(namespace, token), self._clock()
        for account in accounts:
            self._check_rate(account, now)
            self._check_running(account)
        self._check_line(engine)
        self._forget(now)
        for account in accounts:
            self._began.setdefault(account, deque()).append(now)
        self.running.update(accounts)
        self.expected[id(engine)] += 1
        return Entry(self, accounts, now, engine)

    @property
    def waiting(self) -> int:
        """Model calls that wait for a place at an engine."""
        return sum(queue.waiting for queue in self._queues.values())

    def take_back(self, accounts: tuple[Account, ...], began: float) -> None:
        for account in accounts:
            if began in self._began.get(account, ()):
                self._began[account].remove(began)

    def _check_rate(self, account: Account, now: float) -> None:
        limit, began = self.allowance(account).requests_per_minute, self._began.get(account, deque())
        while began and began[0] <= now - MINUTE_S:
            began.popleft()
        if limit and len(began) >= limit:
            wait = began[-limit] + MINUTE_S - now
            raise TooManyRequests(
                f"{whose(account)} has begun {len(began)} turns in the last minute; {limit} are allowed.",
                hint=f"Ask again in {math.ceil(wait)} s.",
                details=told("user_requests_per_minute", limit, len(began), wait),
            )

    def _check_running(self, account: Account) -> None:
        limit, running = self.allowance(account).turns_at_once, self.running[account]
        if limit and running >= limit:
            raise TooManyRequests(
                f"{whose(account)} has {running} turns that are not over; {limit} are allowed at once.",
                hint="Wait for one of them, or stop one.",
                details=told("user_turns_at_once", limit, running, SOON_S),
            )

    def _check_line(self, engine: Engine) -> None:
        waiting = self.queue(engine).waiting + self.expected[id(engine)]
        if self._slots and self._most_waiting and waiting >= self._most_waiting:
            raise EngineBusy(
                f"{waiting} turns wait for {engine.info().model} already; no more are taken.",
                hint="Ask again in a moment.",
                details=told("turns_waiting", self._most_waiting, waiting, SOON_S),
            )

    def _forget(self, now: float) -> None:
        if len(self._began) > MANY:
            known = self._began.items()
            self._began = {account: began for account, began in known if began and began[-1] > now - MINUTE_S}

    # ------------------------------------------------------------------------------------------------ tokens

    async def check_budget(self, namespace: str, token: str) -> dict[Account, int]:
        """How many tokens are left to each account that has a budget. Raises BudgetSpent, StoreError."""
        left: dict[Account, int] = {}
        for account in accounts_of(namespace, token):
            allowed = self.allowance(account)
            if not allowed.budgets:
                continue
            spent = await self._spending.of(account)
            await self._check_spent(account, "hour", spent.hour, allowed.tokens_per_hour, HOUR)
            await self._check_spent(account, "day", spent.day, allowed.tokens_per_day, DAY)
            windows = ((allowed.tokens_per_hour, spent.hour), (allowed.tokens_per_day, spent.day))
            left[account] = min(limit - used for limit, used in windows if limit)
        return left

    @asynccontextmanager
    async def within_budget(self, namespace: str, token: str, tokens: int) -> AsyncGenerator[None, None]:
        """For one model call that may take about so many ``tokens``. Where those that run already may use up what is
        left, it waits for their end, so that no more than the last one goes over. Raises BudgetSpent, StoreError."""
        while True:
            changed = self._call_ended
            left = await self.check_budget(namespace, token)
            if changed is not self._call_ended:
                continue  # what was read is not so any more
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

    async def _check_spent(self, account: Account, window: str, spent: int, limit: int, minutes: int) -> None:
        if not limit or spent < limit:
            return
        wait = await self._spending.below(account, minutes, limit)
        raise BudgetSpent(
            f"{whose(account)} has spent {spent} tokens in the last {window}; {limit} are allowed.",
            hint=f"There are some again in {span(wait)}.",
            details=told(f"user_tokens_per_{window}", limit, spent, wait),
        )

    def charge(self, namespace: str, token: str, tokens: int) -> None:
        accounts = [account for account in accounts_of(namespace, token) if self.allowance(account).budgets]
        self._spending.charge(accounts, tokens)

    # ------------------------------------------------------------------------------------------------ engines

    def queue(self, engine: Engine) -> FairQueue:
        """Engines are kept by ``NamedEngines``, so that each is always the same object."""
        return self._queues.setdefault(id(engine), FairQueue(self._slots))

    def metered(self, engine: Engine, namespace: str, token: str, entry: Entry | None = None) -> Engine:
        """The engine as that user may use it: by turns with the others, as long as there are tokens."""
        number = entry.number if entry else next(self.numbers)
        arrived = entry.arrived if entry else lambda: None
        return Metered(
            engine,
            lambda: self.queue(engine).ticket(user_of(namespace), number),
            arrived=arrived,
            budget=lambda tokens: self.within_budget(namespace, token, tokens),
            spent=lambda tokens: self.charge(namespace, token, tokens),
        )

    # ------------------------------------------------------------------------------------------------ told

    def allowance(self, account: Account) -> Allowance:
        return self._allowed[bool(account.token)]

    async def state(self, namespace: str, token: str = "") -> dict[str, Any]:
        """Of the user and, where a token is given, of that too: what is ``allowed`` (0 = no limit) and ``used``.
        Tokens are counted only where there is a budget. Raises StoreError."""
        rows = [await self._state(account) for account in accounts_of(namespace, token)]
        return {"user": user_of(namespace), **rows[0], "token": {"id": token, **rows[1]} if token else None}

    async def _state(self, account: Account) -> dict[str, Any]:
        allowed, now = self.allowance(account), self._clock()
        spent = asdict(await self._spending.of(account)) if allowed.budgets else {"hour": None, "day": None}
        begun = sum(began > now - MINUTE_S for began in self._began.get(account, ()))
        return {
            "requests_per_minute": {"allowed": allowed.requests_per_minute, "used": begun},
            "turns_at_once": {"allowed": allowed.turns_at_once, "used": self.running[account]},
            "tokens_per_hour": {"allowed": allowed.tokens_per_hour, "used": spent["hour"]},
            "tokens_per_day": {"allowed": allowed.tokens_per_day, "used": spent["day"]},
        }


def accounts_of(namespace: str, token: str) -> tuple[Account, ...]:
    """What a scoped token uses, its user uses too, also where it has a namespace of its own."""
    user = user_of(namespace)
    return (Account(user), Account(user, token)) if token else (Account(user),)


def user_of(namespace: str) -> str:
    return namespace.partition(TOKEN_NAMESPACE_MARK)[0]


def whose(account: Account) -> str:
    return "This token" if account.token else "This user"


def told(limit: str, allowed: int, used: int, wait: float) -> dict[str, Any]:
    return {"limit": limit, "allowed": allowed, "used": used, "retry_after_s": math.ceil(wait)}


def span(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{math.ceil(minutes / 60)} h"
