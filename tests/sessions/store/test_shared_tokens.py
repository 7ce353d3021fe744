"""Tests API tokens of servers that share a database: valid on all of them, and invalid on all of them once revoked."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from agent_kernel.core.api_tokens import DAY_S, ApiTokenStore
from agent_kernel.core.errors import NotFound, StoreError, TokenInvalid
from agent_kernel.sessions.log.encrypted_log import EncryptedBus
from agent_kernel.sessions.log.message_bus import MessageBus, SharedValue
from agent_kernel.sessions.store.shared_tokens import SharedTokens, open_token_store
from tests.narrowing import instance_of
from tests.sessions.log.memory_bus import MemoryBus


@pytest.fixture(params=["plain", "encrypted"])
def bus(request: pytest.FixtureRequest) -> MessageBus:
    return MemoryBus() if request.param == "plain" else EncryptedBus(MemoryBus(), bytes(32))


@pytest.fixture
def servers(bus: MessageBus, tmp_path: Path) -> tuple[ApiTokenStore, ApiTokenStore]:
    return tuple(ApiTokenStore(tmp_path / name, SharedTokens(bus)) for name in ("one", "two"))  # type: ignore[return-value]


def test_a_token_of_one_server_is_valid_on_the_other_until_it_is_revoked_there(
    servers: tuple[ApiTokenStore, ApiTokenStore], tmp_path: Path
) -> None:
    one, two = servers
    token, text = one.new(["turns"], name="app", user="ada")
    other, _ = two.new(["files"])
    assert two.holder(text) == token
    assert [listed.id for listed in one.list_tokens()] == [token.id, other.id]
    assert two.revoke(token.id) is not None
    assert not one.is_valid(token)
    with pytest.raises(TokenInvalid, match="unknown or was revoked"):
        one.holder(text)
    with pytest.raises(NotFound):
        one.revoke(token.id)
    assert [listed.id for listed in two.list_tokens()] == [other.id]
    assert not [*tmp_path.iterdir()], "nothing is in the files"


def test_the_last_use_on_any_server_is_in_the_list_of_all(servers: tuple[ApiTokenStore, ApiTokenStore]) -> None:
    one, two = servers
    _, text = one.new(["turns"])
    assert one.list_tokens()[0].used == 0
    two.holder(text)
    assert one.list_tokens()[0].used == pytest.approx(time.time(), abs=60)


def test_a_token_in_the_files_of_a_server_remains_valid_on_that_server_only(
    servers: tuple[ApiTokenStore, ApiTokenStore], tmp_path: Path
) -> None:
    one, two = servers
    token, text = ApiTokenStore(tmp_path / "one").new(["turns"])
    assert one.holder(text) == token
    with pytest.raises(TokenInvalid):
        two.holder(text)
    assert one.revoke(token.id) is not None
    assert not one.is_valid(token)


def test_a_use_that_is_noted_late_does_not_bring_a_revoked_token_back(bus: MessageBus) -> None:
    tokens = SharedTokens(bus)
    tokens.write("0" * 12, b"{}")
    assert tokens.read("0" * 12) is not None
    assert tokens.delete("0" * 12)
    tokens.note_use("0" * 12, DAY_S)
    assert tokens.read("0" * 12) is None
    assert not tokens.delete("0" * 12)


def test_tokens_that_servers_make_at_once_are_all_in_the_list(bus: MessageBus, tmp_path: Path) -> None:
    stores = [ApiTokenStore(tmp_path, SharedTokens(bus)) for _ in range(3)]
    threads = [threading.Thread(target=lambda it=it: [it.new(["turns"]) for _ in range(10)]) for it in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({token.id for token in stores[0].list_tokens()}) == 30


def test_no_secret_is_in_the_database(servers: tuple[ApiTokenStore, ApiTokenStore], bus: MessageBus) -> None:
    _, text = servers[0].new(["turns"])
    value = instance_of(SharedValue, bus.get_value("", f"token/{text.split('_')[1]}"))
    assert text.split("_")[2].encode() not in value.body


def test_a_database_that_is_away_opens_nothing_and_says_so(tmp_path: Path) -> None:
    class Away(MemoryBus):
        def get_value(self, namespace: str, name: str) -> SharedValue | None:
            raise StoreError("the database is away")

    _, text = ApiTokenStore(tmp_path / "other").new(["turns"])
    with pytest.raises(StoreError, match="away"):
        ApiTokenStore(tmp_path / "mine", SharedTokens(Away())).holder(text)


@pytest.mark.parametrize("store", ["sqlite", "files", "memory", "package.module:Store"])
def test_without_a_shared_database_tokens_are_files(tmp_path: Path, store: str) -> None:
    tokens = open_token_store(tmp_path / "tokens", store)
    token, text = tokens.new(["turns"])
    assert [path.stem for path in (tmp_path / "tokens").iterdir()] == [token.id]
    assert tokens.holder(text).id == token.id
    tokens.close()
