"""The log of several servers in Amazon DynamoDB: batches of entries in one table with the keys ``pk`` and ``sk``. The
values of ``pk`` are:

``log``: the batches by number, followed by the head with the number of the newest batch. A commit is one transaction
that writes a batch and advances the head, if the head still has the number that the writer knows. Batches without
entries expire by the attribute ``expires``.

``pieces`` and ``piece:TOKEN``: parts of batches and media, because an item has at most 400 kB.

``blobs``: the list of media, with the times when they were stored or touched.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import StoreCorrupt
from agent_kernel.sessions.log.batch_table import STUB_KEPT_S, Batch, BatchPage, Blob, Data
from agent_kernel.sessions.log.batched_log import BatchedLog
from agent_kernel.sessions.log.dynamodb_connection import HEAD, DynamoConnection, Item, to_attribute

PIECE_BYTES = 350_000
"""Maximum number of bytes in one piece; DynamoDB refuses items of more than 400 kB."""
WRITTEN_AT_ONCE = 25
"""Maximum number of items in one BatchWriteItem request."""
TORN_ATTEMPTS = 15
"""Maximum number of attempts of a query that has seen only a part of a commit."""


def open_dynamodb(url: str) -> BatchedLog:
    """Return the log in the table that ``url`` names (dynamodb://REGION/TABLE). It connects at its first use, and
    creates the table if it does not exist. Raises InvalidRequest for a URL that cannot be read, or if botocore is not
    installed.
    """
    return BatchedLog(DynamoTable(url))


class DynamoTable:
    """A BatchTable in a DynamoDB table. Several logs can share one table, with different prefixes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._db = DynamoConnection(url)
        self._table, self.name = self._db.table, self._db.name

    def close(self) -> None:
        self._db.close()

    # ------------------------------------------------------------------------------------------- batches

    def now(self) -> float:
        """Return the time of DynamoDB, whose replies state it in whole seconds."""
        return self._db.now()

    def tail(self, after: int) -> BatchPage:
        # A commit writes two items, the batch and the head, and a query may see one of them some milliseconds before
        # the other. The head then names another batch than the last one, and the query is repeated. The newest batch
        # never expires, so a difference that remains means that it is lost.
        for attempt in range(TORN_ATTEMPTS):
            time.sleep(0.005 * attempt)
            found = self._query("log", above=_number(after))
            batches = [_to_batch(item) for item in found["Items"] if item["sk"]["S"] != HEAD]
            last = batches[-1].number if batches else after
            if "LastEvaluatedKey" in found:
                return BatchPage(self.now(), last, batches, more=True)
            newest = next((int(item["last"]["N"]) for item in found["Items"] if item["sk"]["S"] == HEAD), 0)
            if newest == last:
                return BatchPage(self.now(), newest, batches)
        if newest > last:
            raise StoreCorrupt(f"{self.name} has no batch {newest}.", hint="Restore the table from a backup.")
        return BatchPage(self.now(), newest, batches)

    def append(self, batch: Batch) -> bool:
        head = {
            "TableName": self._table,
            "Key": self._db.key("log", HEAD),
            "UpdateExpression": "SET #last = :number",
            "ConditionExpression": "#last = :expected",
            "ExpressionAttributeNames": {"#last": "last"},
            "ExpressionAttributeValues": {
                ":number": to_attribute(batch.number),
                ":expected": to_attribute(batch.number - 1),
            },
        }
        item = {"TableName": self._table, "Item": self._to_item(batch)}
        return self._db.transact([{"Update": head}, {"Put": item}])

    def fetch(self, numbers: Collection[int]) -> Sequence[Batch]:
        request: Any = {
            self._table: {
                "Keys": [self._db.key("log", _number(n)) for n in numbers],
                "ConsistentRead": True,
            }
        }
        found = list[Batch]()
        while request:
            reply = self._db.call("batch_get_item", RequestItems=request)
            found += [_to_batch(item) for item in reply["Responses"][self._table]]
            request = reply.get("UnprocessedKeys")
        return sorted(found, key=lambda batch: batch.number)

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        changes = [
            {
                "Put": {
                    "TableName": self._table,
                    "Item": self._to_item(batch),
                    "ConditionExpression": "#version = :before",
                    "ExpressionAttributeNames": {"#version": "version"},
                    "ExpressionAttributeValues": {":before": to_attribute(batch.version - 1)},
                }
            }
            for batch in batches
        ]
        return self._db.transact(changes)

    # ------------------------------------------------------------------------------------------- pieces

    def put_pieces(self, token: str, data: bytes) -> int:
        parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)] or [b""]
        self._write_item("pieces", token, {"stored": to_attribute(self.now()), "count": to_attribute(len(parts))})
        for number, part in enumerate(parts):
            self._write_item(f"piece:{token}", _number(number), {"data": {"B": part}})
        return len(parts)

    def get_pieces(self, token: str, count: int) -> bytes | None:
        found, above = list[bytes](), ""
        while len(found) < count:
            reply = self._query(f"piece:{token}", above=above)
            if not reply["Items"]:
                return None
            found += [item["data"]["B"] for item in reply["Items"]]
            above = reply["Items"][-1]["sk"]["S"]
        return b"".join(found)

    def delete_pieces(self, token: str, count: int) -> None:
        keys = [self._db.key(f"piece:{token}", _number(number)) for number in range(count)]
        for at in range(0, len(keys), WRITTEN_AT_ONCE):
            left: Any = {self._table: [{"DeleteRequest": {"Key": key}} for key in keys[at : at + WRITTEN_AT_ONCE]]}
            while left:
                left = self._db.call("batch_write_item", RequestItems=left).get("UnprocessedItems")
        self._db.call("delete_item", TableName=self._table, Key=self._db.key("pieces", token))

    def old_pieces(self, until: float) -> Collection[tuple[str, int]]:
        return [
            (item["sk"]["S"], int(item["count"]["N"]))
            for item in self._iterate_items("pieces")
            if float(item["stored"]["N"]) <= until
        ]

    # ------------------------------------------------------------------------------------------- media

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        values = {
            "token": {"S": data.token},
            "count": to_attribute(data.count),
            "size": to_attribute(size),
            "stored": to_attribute(self.now()),
        }
        return self._write_item("blobs", key, values, ConditionExpression="attribute_not_exists(pk)")

    def get_blob(self, key: str) -> Blob | None:
        item = self._get("blobs", key)
        return None if item is None else _to_blob(item)

    def touch_blob(self, key: str) -> bool:
        return self._db.write_if(
            "update_item",
            Key=self._db.key("blobs", key),
            UpdateExpression="SET #stored = :now",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeNames={"#stored": "stored"},
            ExpressionAttributeValues={":now": to_attribute(self.now())},
        )

    def blobs(self) -> Iterator[tuple[str, Blob]]:
        for item in self._iterate_items("blobs"):
            yield item["sk"]["S"], _to_blob(item)

    def delete_blob(self, key: str, until: float) -> bool:
        return self._db.write_if(
            "delete_item",
            Key=self._db.key("blobs", key),
            ConditionExpression="attribute_not_exists(pk) OR #stored <= :until",
            ExpressionAttributeNames={"#stored": "stored"},
            ExpressionAttributeValues={":until": to_attribute(until)},
        )

    # ------------------------------------------------------------------------------------------- items

    def _to_item(self, batch: Batch) -> Item:
        item = {
            **self._db.key("log", _number(batch.number)),
            "commit": {"S": batch.commit},
            "data": {"B": batch.data.inline},
            "token": {"S": batch.data.token},
            "count": to_attribute(batch.data.count),
            "version": to_attribute(batch.version),
        }
        return item | ({"expires": to_attribute(int(self.now()) + STUB_KEPT_S)} if batch.expires else {})

    def _get(self, partition: str, name: str) -> Item | None:
        key = self._db.key(partition, name)
        found: Item | None = self._db.call("get_item", TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return found

    def _write_item(self, partition: str, name: str, values: Mapping[str, Any], **condition: str) -> bool:
        """Write one item, or return False if ``condition`` does not hold for the item that it would replace."""
        return self._db.write_if("put_item", Item={**self._db.key(partition, name), **values}, **condition)

    def _query(self, partition: str, *, above: str) -> Item:
        """Return one page of the items with a greater sort key, in order."""
        values = {":pk": {"S": self._db.prefix + partition}, ":above": {"S": above or " "}}
        found: Item = self._db.call(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND sk > :above",
            ExpressionAttributeValues=values,
        )
        return found

    def _iterate_items(self, partition: str) -> Iterator[Item]:
        reply = self._query(partition, above="")
        yield from reply["Items"]
        while "LastEvaluatedKey" in reply:
            reply = self._query(partition, above=reply["LastEvaluatedKey"]["sk"]["S"])
            yield from reply["Items"]


def _number(number: int) -> str:
    """Return the number as a sort key. The order of the sort keys is the order of the numbers."""
    return f"{number:020}"


def _to_batch(item: Item) -> Batch:
    data = Data(item["data"]["B"], item["token"]["S"], int(item["count"]["N"]))
    return Batch(int(item["sk"]["S"]), item["commit"]["S"], data, int(item["version"]["N"]), "expires" in item)


def _to_blob(item: Item) -> Blob:
    data = Data(b"", item["token"]["S"], int(item["count"]["N"]))
    return Blob(data, int(item["size"]["N"]), float(item["stored"]["N"]))
