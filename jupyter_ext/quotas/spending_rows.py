"""Stores the tokens that accounts have spent, summed for each minute of the last day."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from agent_kernel.core.errors import ServerStopping, StoreError
from agent_kernel.sessions.log.message_bus import SharedValue
from agent_kernel.sessions.store.database import Database

HOUR, DAY = 60, 24 * 60
"""The lengths of an hour and a day in minutes."""
TIDY = 10
"""Minutes between two deletions of old rows."""
KEEP_S = (DAY + HOUR) * 60.0


@dataclass(frozen=True, slots=True)
class QuotaAccount:
    """An account whose tokens are counted: that of a user, or of one API token of the user (``token`` is its id)."""

    user: str
    token: str = ""

    def name_in_store(self, kind: str) -> str:
        """Return the name of the value of this ``kind``, such as ``spent``, that all servers share for the account. It
        is unique among the values of the user. A hash stands for the token, so that the name does not contain the
        token's id."""
        return f"{kind}/{hashlib.sha256(self.token.encode()).hexdigest() if self.token else ''}"


Charges: TypeAlias = Mapping[tuple[QuotaAccount, int], int]
"""Maps (account, number of the minute since the epoch) to the tokens that the account spent in this minute."""


class SpendingRows(Protocol):
    """The interface of a store for the numbers of spent tokens. Both methods raise StoreError."""

    async def read(self, account: QuotaAccount, since: int) -> Mapping[int, int]:
        """Return the tokens that the account has spent in each minute after ``since``."""

    async def add(self, charges: Charges, minute: int) -> Charges:
        """Add the charges, and return those that were written. ``minute`` is the present minute."""


class DatabaseSpending:
    """Stores the spent tokens of one server, or of servers with the same data directory, in a database table."""

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
    """The interface to values that servers share (``MessageBus``, ``change_value``), for use on the event loop."""

    async def get_value(self, namespace: str, name: str) -> SharedValue | None: ...

    async def change_value(
        self, namespace: str, name: str, change: Callable[[bytes | None], bytes | None], keep_s: float
    ) -> None: ...


class SharedSpending:
    """The spent tokens of servers that share a store: one value for each account, with all its minutes."""

    def __init__(self, values: SharedValues) -> None:
        self._values = values

    async def read(self, account: QuotaAccount, since: int) -> Mapping[int, int]:
        with _stopping_as_store_error():
            value = await self._values.get_value(account.user, account.name_in_store("spent"))
        rows = _decode(value.body if value else None)
        return {minute: tokens for minute, tokens in rows.items() if minute > since}

    async def add(self, charges: Charges, minute: int) -> Charges:
        """Add only the charges of the first account, and return them; the caller passes the others again in its next
        calls. Because each call writes one value, it is always known which charges were written.
        """
        account = next(iter(charges))[0]
        own_charges = {key: tokens for key, tokens in charges.items() if key[0] == account}

        def add(content: bytes | None) -> bytes:
            rows = _decode(content)
            rows.update({at: tokens for (_, at), tokens in own_charges.items()})
            return json.dumps([(at, tokens) for at, tokens in rows.items() if at > minute - DAY]).encode()

        with _stopping_as_store_error():
            await self._values.change_value(account.user, account.name_in_store("spent"), add, KEEP_S)
        return own_charges


@contextmanager
def _stopping_as_store_error() -> Iterator[None]:
    """Context manager that raises StoreError in place of ServerStopping. The caller then treats a server that is
    stopping like an unreachable database: it keeps the charges that it could not write."""
    try:
        yield
    except ServerStopping as error:
        raise StoreError(str(error)) from error


def _decode(body: bytes | None) -> Counter[int]:
    return Counter(dict(json.loads(body))) if body else Counter()
