"""Where the tokens that accounts spend are stored, summed for each minute of the last day."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from agent_kernel.core.errors import ServerStopping, StoreError
from agent_kernel.sessions.log.message_bus import SharedValue
from agent_kernel.sessions.store.database import Database

HOUR, DAY = 60, 24 * 60
"""The lengths of an hour and a day in minutes."""
TIDY = 10
"""How often old rows are deleted, in minutes."""
KEEP_S = (DAY + HOUR) * 60.0
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class QuotaAccount:
    """A user, or one scoped token of a user."""

    user: str
    token: str = ""


Charges: TypeAlias = Mapping[tuple[QuotaAccount, int], int]
"""Tokens by account and minute since the epoch."""


class SpendingRows(Protocol):
    """Both methods raise StoreError."""

    async def read(self, account: QuotaAccount, since: int) -> Mapping[int, int]:
        """Return the tokens that the account has spent in each minute after ``since``."""

    async def add(self, charges: Charges, minute: int) -> Charges:
        """Add the charges, and return those that were written. ``minute`` is the present one."""


class DatabaseSpending:
    """The rows of one server, or of servers with the same data directory."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._tidied = -TIDY

    async def read(self, account: QuotaAccount, since: int) -> Mapping[int, int]:
        def select(connection: sqlite3.Connection) -> list[tuple[int, int]]:
            question = "SELECT minute, tokens FROM spent WHERE user = ? AND token = ? AND minute > ?"
            return connection.execute(question, (account.user, account.token, since)).fetchall()

        return dict(await self._records.read(select))

    async def add(self, charges: Charges, minute: int) -> Charges:
        await self._records.write(partial(self._write, charges, minute))
        return charges

    def _write(self, charges: Charges, now: int, connection: sqlite3.Connection) -> None:
        """Write the charges. Runs on the thread of the database."""
        connection.executemany(
            "INSERT INTO spent VALUES (?, ?, ?, ?) "
            "ON CONFLICT (user, token, minute) DO UPDATE SET tokens = tokens + excluded.tokens",
            [(account.user, account.token, minute, tokens) for (account, minute), tokens in charges.items()],
        )
        if now - self._tidied >= TIDY:
            self._tidied = now
            connection.execute("DELETE FROM spent WHERE minute <= ?", (now - DAY,))


class SharedValues(Protocol):
    """Values that servers share (``MessageBus``), on the event loop."""

    async def get_value(self, namespace: str, name: str) -> SharedValue | None: ...

    async def swap_value(
        self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float
    ) -> bool: ...


class SharedSpending:
    """The rows of the servers that share a store: one value for each account, with all its minutes."""

    def __init__(self, values: SharedValues) -> None:
        self._values = values

    async def read(self, account: QuotaAccount, since: int) -> Mapping[int, int]:
        rows, _ = await self._get(account)
        return {minute: tokens for minute, tokens in rows.items() if minute > since}

    async def add(self, charges: Charges, minute: int) -> Charges:
        """Add the charges of one account. The others follow with the next calls, so that an error in between leaves no
        charge in doubt."""
        account = next(iter(charges))[0]
        mine = {key: tokens for key, tokens in charges.items() if key[0] == account}
        for _ in range(ATTEMPTS):
            rows, version = await self._get(account)
            rows.update({at: tokens for (_, at), tokens in mine.items()})
            kept = {at: tokens for at, tokens in rows.items() if at > minute - DAY}
            value = SharedValue(secrets.token_hex(8), json.dumps([*kept.items()]).encode())
            if await self._swap(account, version, value):
                return mine
        raise StoreError("The tokens spent could not be written, because other servers wrote at the same time.")

    async def _get(self, account: QuotaAccount) -> tuple[Counter[int], str]:
        try:
            value = await self._values.get_value(account.user, _name(account))
        except ServerStopping as error:
            raise StoreError(str(error)) from error
        return (Counter(), "") if value is None else (Counter(dict(json.loads(value.body))), value.version)

    async def _swap(self, account: QuotaAccount, expect: str, value: SharedValue) -> bool:
        try:
            return await self._values.swap_value(account.user, _name(account), expect, value, KEEP_S)
        except ServerStopping as error:
            raise StoreError(str(error)) from error


def _name(account: QuotaAccount) -> str:
    """Return the name of an account's value. It contains no name of a token."""
    return f"spent/{hashlib.sha256(account.token.encode()).hexdigest() if account.token else ''}"
