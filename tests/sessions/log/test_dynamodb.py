"""Tests the log in DynamoDB: its table, a partial commit that a query sees, and URLs that are refused. The database is
the FAKE of moto.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log import dynamodb
from agent_kernel.sessions.log.batched_log import BatchedLog
from agent_kernel.sessions.log.dynamodb import DynamoTable
from agent_kernel.sessions.log.log_store import Append
from agent_kernel.sessions.store.store_url import open_log, open_store
from tests.sessions.log.servers import FakeDynamo
from tests.sessions.log.test_log_store import append, everything

pytestmark = pytest.mark.stores


@pytest.fixture
def table(dynamo: FakeDynamo) -> Iterator[Any]:
    made = DynamoTable(dynamo.fresh())
    yield made
    made.close()


def test_the_table_is_paid_by_request_and_lets_batches_without_entries_expire(table: Any) -> None:
    log = BatchedLog(table)
    log.commit("1", [append("s", body=b"forget")])
    log.commit("2", [Append("a", "s", 1, b"all", replaces=True)])
    described = table._db._client.client.describe_table(TableName=table._table)["Table"]
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    expiry = table._db._client.client.describe_time_to_live(TableName=table._table)["TimeToLiveDescription"]
    assert (expiry["TimeToLiveStatus"], expiry["AttributeName"]) == ("ENABLED", "expires")
    items = {item["sk"]["S"]: item for item in table._iterate_items("log")}
    assert [name for name, item in items.items() if "expires" in item] == [f"{1:020}"]
    assert 86_000 < int(items[f"{1:020}"]["expires"]["N"]) - table.now() < 87_000
    assert b"forget" not in items[f"{1:020}"]["data"]["B"]


def test_a_query_that_sees_the_head_of_a_commit_before_its_batch_is_repeated(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BatchedLog(table)
    log.commit("1", [append("s")])
    log.commit("2", [append("s", expect=1)])
    query, torn = table._query, iter([1, 1, 0])

    def see_half(partition: str, *, above: str) -> Any:
        found = query(partition, above=above)
        if partition == "log" and next(torn, 0):
            found["Items"] = [item for item in found["Items"] if item["sk"]["S"] != f"{2:020}"]
        return found

    monkeypatch.setattr(table, "_query", see_half)
    assert [entry.position for entry in everything(BatchedLog(table))] == [1, 2]


def test_a_batch_that_is_missing_is_an_error_and_never_a_shorter_conversation(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BatchedLog(table)
    log.commit("1", [append("s")])
    table._db._client.client.delete_item(TableName=table._table, Key=table._db.key("log", f"{1:020}"))
    monkeypatch.setattr(dynamodb, "TORN_ATTEMPTS", 2)
    with pytest.raises(StoreCorrupt, match="has no batch 1"):
        BatchedLog(table).read({})


def test_logs_with_different_prefixes_are_apart_in_one_table(dynamo: FakeDynamo) -> None:
    url = dynamo.fresh()
    logs = [open_log(f"{url}&prefix={name}") for name in ("one.", "two.")]
    for log in logs:
        assert log.commit("1", [append("s", body=log.name.encode())]) == {("a", "s"): 1}
    assert [everything(log)[0].body for log in logs] == [log.name.encode() for log in logs]
    for log in logs:
        log.close()


def test_a_newer_version_is_refused(table: Any) -> None:
    table.now()
    table._write_item("log", "head", {"last": {"N": "0"}, "version": {"N": "99"}})
    newer = open_log(table._url)
    with pytest.raises(StoreCorrupt, match="newer agent-kernel"):
        newer.read({})
    newer.close()


def test_a_table_that_cannot_be_reached_and_missing_keys_of_access_are_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none-secret")
    log = open_log("dynamodb://eu-central-1/chats?endpoint=http://127.0.0.1:1")
    with pytest.raises(StoreError, match="cannot be used") as raised:
        log.read({})
    assert "none-secret" not in json.dumps([f"{raised.value}", raised.value.hint])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreError, match="credentials") as raised:
        log.read({})
    assert "AWS_PROFILE" in raised.value.hint
    with pytest.raises(StoreError, match="profile"):
        open_log("dynamodb://eu-central-1/chats?profile=nobody").read({})


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb:chats",
        "dynamodb://eu-central-1",
        "dynamodb://eu-central-1/ab",
        "dynamodb://europe/chats",
        "dynamodb://KEY:secret@eu-central-1/chats",
        "dynamodb://eu-central-1/chats?aws_secret=secret",
        "dynamodb://eu-central-1/chats?endpoint=ftp://secret",
        "dynamodb://eu-central-1/chats/secret",
        "dynamodb://[eu/chats",
    ],
)
def test_an_address_that_is_no_table_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read") as raised:
        open_store(url)
    assert "secret" not in f"{raised.value} {raised.value.hint}"
