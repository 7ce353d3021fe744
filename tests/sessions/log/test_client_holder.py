"""Tests when the client of a database is connected, prepared and released."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.sessions.log.client_holder import ClientHolder


class Client:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Database:
    """Notes which clients it made and which of them were prepared; preparing fails while ``error`` is set."""

    def __init__(self) -> None:
        self.made: list[Client] = []
        self.prepared: list[Any] = []
        self.error: Exception | None = None

    def connect(self) -> Client:
        self.made.append(Client())
        return self.made[-1]

    def prepare(self, client: Any) -> None:
        if self.error:
            raise self.error
        self.prepared.append(client)


def is_broken(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


def test_a_client_is_connected_and_prepared_at_the_first_use_and_kept() -> None:
    database = Database()
    holder = ClientHolder(database.connect, database.prepare)
    assert database.made == []
    used = [holder.use(lambda client: client, is_broken) for _ in range(2)]
    assert used == [database.made[0]] * 2
    assert database.prepared == database.made


def test_a_call_whose_connection_broke_is_made_again_with_a_new_client() -> None:
    database = Database()
    holder = ClientHolder(database.connect, database.prepare)
    failures = [ConnectionError("broken")]

    def work(client: Any) -> Any:
        if failures:
            raise failures.pop()
        return client

    assert holder.use(work, is_broken) is database.made[1]
    assert [client.closed for client in database.made] == [True, False]


@pytest.mark.parametrize(("error", "made"), [(ConnectionError("broken"), 2), (ValueError("refused"), 1)])
def test_only_a_broken_connection_is_tried_again_and_only_once(error: Exception, made: int) -> None:
    database = Database()
    holder = ClientHolder(database.connect, database.prepare)

    def fail(client: Any) -> None:
        raise error

    with pytest.raises(type(error)):
        holder.use(fail, is_broken)
    assert len(database.made) == made
    assert [client.closed for client in database.made] == [isinstance(error, ConnectionError)] * made


def test_a_client_that_cannot_be_prepared_is_released_and_the_next_use_connects_again() -> None:
    database = Database()
    holder = ClientHolder(database.connect, database.prepare)
    database.error = ValueError("newer format")
    with pytest.raises(ValueError, match="newer format"):
        holder.open()
    assert database.made[0].closed
    assert holder.client is None
    database.error = None
    assert holder.open() is database.made[1]
