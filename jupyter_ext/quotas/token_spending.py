"""Counts the tokens that users have spent in the last hour and the last day."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent_kernel.core.errors import StoreError
from jupyter_ext.quotas.spending_rows import DAY, HOUR, QuotaAccount, SpendingRows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokensSpent:
    """Numbers of tokens spent in the last hour and the last day. Tokens are summed for each minute, so the last hour
    covers 59 to 60 minutes."""

    hour: int = 0
    day: int = 0


class TokenSpending:
    """Counts the tokens that each account spends, in memory and in ``rows``.

    ``charge`` counts in memory at once and writes a moment later. If a write fails, the tokens count all the same, and
    are written together with the next ones.
    """

    def __init__(self, rows: SpendingRows, clock: Callable[[], float] = time.time) -> None:
        self._stored = rows
        self._clock = clock
        self._unsaved: Counter[tuple[QuotaAccount, int]] = Counter()
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def charge(self, accounts: Iterable[QuotaAccount], tokens: int) -> None:
        if tokens <= 0:
            return
        for account in accounts:
            self._unsaved[account, self._minute] += tokens
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._save_all(), name="tokens spent")

    async def spent_by(self, account: QuotaAccount) -> TokensSpent:
        """Return the numbers of tokens that the account has spent in the last hour and the last day. Raises
        StoreError."""
        rows = await self._rows(account)
        now = self._minute
        return TokensSpent(sum(n for minute, n in rows if minute > now - HOUR), sum(n for _, n in rows))

    async def seconds_until_below(self, account: QuotaAccount, minutes: int, limit: int) -> float:
        """Return the seconds until the account has spent fewer than ``limit`` (1 or more) tokens in the last
        ``minutes``; 0 if that is so now. Raises StoreError."""
        rows = [row for row in await self._rows(account) if row[0] > self._minute - minutes]
        left = sum(tokens for _, tokens in rows)
        until = 0.0
        for minute, tokens in rows:
            if left < limit:
                break
            left -= tokens
            until = (minute + minutes) * 60 - self._clock()
        return max(until, 0.0)

    async def aclose(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    @property
    def _minute(self) -> int:
        return int(self._clock() // 60)

    async def _rows(self, account: QuotaAccount) -> list[tuple[int, int]]:
        """Return (minute, tokens spent in that minute) for the last day, oldest first."""
        since = self._minute - DAY
        async with self._saving:
            saved = Counter(await self._stored.read(account, since))
            for (whose, minute), tokens in self._unsaved.items():
                if whose == account and minute > since:
                    saved[minute] += tokens
        return sorted(saved.items())

    async def _save_all(self) -> None:
        while self._unsaved:
            async with self._saving:
                try:
                    written = await self._stored.add(dict(self._unsaved), self._minute)
                except StoreError as error:
                    log.warning("spent tokens could not be stored yet: %s", error)
                    return
                self._unsaved.subtract(written)
                self._unsaved = +self._unsaved
