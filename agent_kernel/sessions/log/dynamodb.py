"""The log of several servers in Amazon DynamoDB: batches of entries in one table with the keys ``pk`` and ``sk``. The
values of ``pk`` are:

``log``: the batches by number, followed by the head with the number of the newest batch. A commit is one transaction
that writes a batch and advances the head, if the head still has the number that the writer knows. Batches without
entries expire by the attribute ``expires``.

``pieces`` and ``piece:TOKEN``: parts of batches and media, because an item has at most 400 kB.

``blobs``: the list of media, with the times when they were stored or touched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log.batch_table import STUB_KEPT_S, Batch, BatchPage, Blob, Data
from agent_kernel.sessions.log.batched_log import BatchedLog

VERSION = 1
PIECE_BYTES = 350_000
"""Maximum number of bytes in one piece; DynamoDB refuses items of more than 400 kB."""
WRITTEN_AT_ONCE = 25
"""Maximum number of items in one BatchWriteItem request."""
CREATION_S = 60.0
TORN_ATTEMPTS = 15
"""Maximum number of attempts of a query that has seen only a part of a commit."""
_HEAD = "head"
"""Sort key of the head; it is behind those of all batches, which are numbers."""
Item = dict[str, Any]


def open_dynamodb(url: str) -> BatchedLog:
    """Return the log in the table that ``url`` names (dynamodb://REGION/TABLE). It connects at its first use, and
    creates the table if it does not exist. Raises InvalidRequest for a URL that cannot be read, or if botocore is not
    installed.
    """
    return BatchedLog(DynamoTable(url))


class DynamoTable:
    """A BatchTable in a DynamoDB table. Access keys are found where the tools of AWS look for them. Several logs can
    share one table, with different prefixes.
    """

    def __init__(self, url: str) -> None:
        try:
            import botocore.exceptions
            import botocore.session
        except ImportError:
            raise InvalidRequest(
                "The store 'dynamodb:' needs the Python package botocore.",
                hint="Install it: pip install 'agent-kernel[dynamodb]'.",
            ) from None
        self._botocore = botocore
        self._url = url
        try:
            self._region, self._table, options = _read_url(url)
        except ValueError:
            raise InvalidRequest(
                "The URL of the DynamoDB store cannot be read.",
                hint="Use dynamodb://REGION/TABLE, for example dynamodb://eu-central-1/chats; the query may have"
                " prefix=NAME, profile=NAME and endpoint=URL. The URL must not contain access keys.",
            ) from None
        self._prefix = options.get("prefix", "")
        self._profile, self._endpoint = options.get("profile"), options.get("endpoint")
        self.name = f"The DynamoDB store {self._table}{self._prefix and ' ' + self._prefix} in {self._region}"
        self._client: Any = None
        self._offset = time.time() - time.monotonic()

    # ------------------------------------------------------------------------------------------- batches

    def now(self) -> float:
        """Return the time of DynamoDB, whose replies state it in whole seconds."""
        if self._client is None:
            self._get("log", _HEAD)
        return time.monotonic() + self._offset

    def tail(self, after: int) -> BatchPage:
        # A query may see one of the two items of a commit before the other. The newest batch always has entries, so it
        # never expires, and a head that names another batch than the last one is a matter of milliseconds.
        for attempt in range(TORN_ATTEMPTS):
            time.sleep(0.005 * attempt)
            found = self._query("log", above=_number(after))
            batches = [_to_batch(item) for item in found["Items"] if item["sk"]["S"] != _HEAD]
            last = batches[-1].number if batches else after
            if "LastEvaluatedKey" in found:
                return BatchPage(self.now(), last, batches, more=True)
            newest = next((int(item["last"]["N"]) for item in found["Items"] if item["sk"]["S"] == _HEAD), 0)
            if newest == last:
                return BatchPage(self.now(), newest, batches)
        if newest > last:
            raise StoreCorrupt(f"{self.name} has no batch {newest}.", hint="Restore the table from a backup.")
        return BatchPage(self.now(), newest, batches)

    def append(self, batch: Batch) -> bool:
        head = {
            "TableName": self._table,
            "Key": self._key("log", _HEAD),
            "UpdateExpression": "SET #last = :number",
            "ConditionExpression": "#last = :expected",
            "ExpressionAttributeNames": {"#last": "last"},
            "ExpressionAttributeValues": {":number": _n(batch.number), ":expected": _n(batch.number - 1)},
        }
        item = {"TableName": self._table, "Item": self._to_item(batch)}
        return self._transact([{"Update": head}, {"Put": item}])

    def fetch(self, numbers: Collection[int]) -> Sequence[Batch]:
        wanted: Any = {self._table: {"Keys": [self._key("log", _number(n)) for n in numbers], "ConsistentRead": True}}
        found = list[Batch]()
        while wanted:
            reply = self._call("batch_get_item", RequestItems=wanted)
            found += [_to_batch(item) for item in reply["Responses"][self._table]]
            wanted = reply.get("UnprocessedKeys")
        return sorted(found, key=lambda batch: batch.number)

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        changes = [
            {
                "Put": {
                    "TableName": self._table,
                    "Item": self._to_item(batch),
                    "ConditionExpression": "#version = :before",
                    "ExpressionAttributeNames": {"#version": "version"},
                    "ExpressionAttributeValues": {":before": _n(batch.version - 1)},
                }
            }
            for batch in batches
        ]
        return self._transact(changes)

    def _transact(self, changes: Sequence[Item]) -> bool:
        """Write all items in one transaction, or return False if a condition does not hold or another writer changes
        the same items.
        """
        try:
            self._call("transact_write_items", keep="TransactionCanceledException", TransactItems=changes)
        except self._botocore.exceptions.ClientError as error:
            reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
            if reasons & {"ConditionalCheckFailed", "TransactionConflict"}:
                return False
            raise self._to_store_error(error) from None
        return True

    # ------------------------------------------------------------------------------------------- pieces

    def put_pieces(self, token: str, data: bytes) -> int:
        parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)] or [b""]
        self._put("pieces", token, {"stored": _n(self.now()), "count": _n(len(parts))})
        for number, part in enumerate(parts):
            self._put(f"piece:{token}", _number(number), {"data": {"B": part}})
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
        keys = [self._key(f"piece:{token}", _number(number)) for number in range(count)]
        for at in range(0, len(keys), WRITTEN_AT_ONCE):
            left: Any = {self._table: [{"DeleteRequest": {"Key": key}} for key in keys[at : at + WRITTEN_AT_ONCE]]}
            while left:
                left = self._call("batch_write_item", RequestItems=left).get("UnprocessedItems")
        self._call("delete_item", TableName=self._table, Key=self._key("pieces", token))

    def old_pieces(self, until: float) -> Collection[tuple[str, int]]:
        return [
            (item["sk"]["S"], int(item["count"]["N"]))
            for item in self._all("pieces")
            if float(item["stored"]["N"]) <= until
        ]

    # ------------------------------------------------------------------------------------------- media

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        values = {"token": {"S": data.token}, "count": _n(data.count), "size": _n(size), "stored": _n(self.now())}
        return self._put("blobs", key, values, ConditionExpression="attribute_not_exists(pk)")

    def get_blob(self, key: str) -> Blob | None:
        item = self._get("blobs", key)
        return None if item is None else _to_blob(item)

    def touch_blob(self, key: str) -> bool:
        return self._if_fits(
            "update_item",
            Key=self._key("blobs", key),
            UpdateExpression="SET #stored = :now",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeNames={"#stored": "stored"},
            ExpressionAttributeValues={":now": _n(self.now())},
        )

    def blobs(self) -> Iterator[tuple[str, Blob]]:
        for item in self._all("blobs"):
            yield item["sk"]["S"], _to_blob(item)

    def delete_blob(self, key: str, until: float) -> bool:
        return self._if_fits(
            "delete_item",
            Key=self._key("blobs", key),
            ConditionExpression="attribute_not_exists(pk) OR #stored <= :until",
            ExpressionAttributeNames={"#stored": "stored"},
            ExpressionAttributeValues={":until": _n(until)},
        )

    # ------------------------------------------------------------------------------------------- items

    def _key(self, partition: str, name: str) -> Item:
        return {"pk": {"S": self._prefix + partition}, "sk": {"S": name}}

    def _to_item(self, batch: Batch) -> Item:
        item = {
            **self._key("log", _number(batch.number)),
            "commit": {"S": batch.commit},
            "data": {"B": batch.data.inline},
            "token": {"S": batch.data.token},
            "count": _n(batch.data.count),
            "version": _n(batch.version),
        }
        return item | ({"expires": _n(int(self.now()) + STUB_KEPT_S)} if batch.expires else {})

    def _get(self, partition: str, name: str) -> Item | None:
        key = self._key(partition, name)
        found: Item | None = self._call("get_item", TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return found

    def _put(self, partition: str, name: str, values: Mapping[str, Any], **condition: str) -> bool:
        return self._if_fits("put_item", Item={**self._key(partition, name), **values}, **condition)

    def _query(self, partition: str, *, above: str) -> Item:
        """Return one page of the items with a greater sort key, in order."""
        values = {":pk": {"S": self._prefix + partition}, ":above": {"S": above or " "}}
        found: Item = self._call(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND sk > :above",
            ExpressionAttributeValues=values,
        )
        return found

    def _all(self, partition: str) -> Iterator[Item]:
        reply = self._query(partition, above="")
        yield from reply["Items"]
        while "LastEvaluatedKey" in reply:
            reply = self._query(partition, above=reply["LastEvaluatedKey"]["sk"]["S"])
            yield from reply["Items"]

    def _if_fits(self, operation: str, **arguments: Any) -> bool:
        """Write one item, or return False if its condition does not hold."""
        try:
            self._call(operation, keep="ConditionalCheckFailedException", TableName=self._table, **arguments)
        except self._botocore.exceptions.ClientError:
            return False
        return True

    # ------------------------------------------------------------------------------------------- connection

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, operation: str, *, keep: str = "", **arguments: Any) -> Item:
        """Send one request; the library repeats it when the connection breaks. Raises StoreError, or the library's own
        error if its code is in ``keep``.
        """
        errors = self._botocore.exceptions
        try:
            reply: Item = getattr(self._open(), operation)(**arguments)
        except errors.ClientError as error:
            if error.response["Error"]["Code"] == keep:
                raise
            raise self._to_store_error(error) from None
        except errors.BotoCoreError as error:
            self.close()
            raise self._to_store_error(error) from None
        self._note_time(reply)
        return reply

    def _note_time(self, reply: Item) -> None:
        date = reply["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date:
            # Full seconds, cut off: the true difference is at most a second more, and never less.
            least = parsedate_to_datetime(date).timestamp() - time.monotonic()
            self._offset = min(max(self._offset, least), least + 1)

    def _open(self) -> Any:
        if self._client is None:
            from botocore.config import Config

            session = self._botocore.session.Session(profile=self._profile)
            client = session.create_client(
                "dynamodb",
                region_name=self._region,
                endpoint_url=self._endpoint,
                config=Config(
                    connect_timeout=10,
                    read_timeout=30,
                    retries={"mode": "standard", "total_max_attempts": 4},
                    user_agent_appid="agent-kernel",
                ),
            )
            try:
                self._prepare(client)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client

    def _prepare(self, client: Any) -> None:
        """Create the table and the head if they do not exist. Raises StoreCorrupt if they have a newer version."""
        key = self._key("log", _HEAD)
        try:
            found = client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        except client.exceptions.ResourceNotFoundException:
            self._create_table(client)
            found = None
        if found is None:
            head = {**key, "last": _n(0), "version": _n(VERSION)}
            with suppress(client.exceptions.ConditionalCheckFailedException):  # another server created it just now
                client.put_item(TableName=self._table, Item=head, ConditionExpression="attribute_not_exists(pk)")
            found = client.get_item(TableName=self._table, Key=key, ConsistentRead=True)["Item"]
        version = int(found["version"]["N"])
        if version != VERSION:
            raise StoreCorrupt(
                f"{self.name} was written by a newer agent-kernel (format {version}, this one knows {VERSION}).",
                hint="Nothing was changed. Upgrade agent-kernel, or name another table or prefix.",
            )

    def _create_table(self, client: Any) -> None:
        """Create the table with payment per request, or wait for another server that is creating it."""
        with suppress(client.exceptions.ResourceInUseException):  # another server creates it
            client.create_table(
                TableName=self._table,
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
                BillingMode="PAY_PER_REQUEST",
            )
        end = time.monotonic() + CREATION_S
        while client.describe_table(TableName=self._table)["Table"]["TableStatus"] != "ACTIVE":
            if time.monotonic() > end:
                raise StoreError(f"{self.name} is still being created.", hint="Try again in a minute.")
            time.sleep(0.5)
        expiry = client.describe_time_to_live(TableName=self._table)["TimeToLiveDescription"]
        if expiry.get("TimeToLiveStatus", "DISABLED") == "DISABLED":
            expires = {"Enabled": True, "AttributeName": "expires"}
            try:
                client.update_time_to_live(TableName=self._table, TimeToLiveSpecification=expires)
            except self._botocore.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "ValidationException":
                    raise
                # Another server enabled it at the same moment.

    def _to_store_error(self, error: Exception) -> StoreError:
        cause = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return StoreError(
            f"{self.name} cannot be used: {cause[:300]}",
            hint="Check the region, the table, and the keys of access of AWS (AWS_PROFILE or AWS_ACCESS_KEY_ID). The"
            " store works again as soon as DynamoDB can be reached.",
        )


def _read_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Return the region, the table and the options. Raises ValueError."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    fits = (
        (r"[a-z]{2}(-[a-z]+)+-\d{1,2}", parts.netloc),
        (r"/[\w.-]{3,255}", parts.path),
        (r"[\w.:-]{0,100}", options.get("prefix", "")),
        (r"(https?://[\w.:\[\]-]+/?)?", options.get("endpoint", "")),
        (r"[^\n]{0,100}", options.get("profile", "")),
    )
    if parts.fragment or set(options) - {"prefix", "profile", "endpoint"}:
        raise ValueError("option")
    if not all(re.fullmatch(pattern, text, re.ASCII) for pattern, text in fits):
        raise ValueError("name")
    return parts.netloc, parts.path[1:], {name: value for name, value in options.items() if value}


def _number(number: int) -> str:
    """Return a sort key; sort keys have the order of their numbers."""
    return f"{number:020}"


def _n(number: float) -> Item:
    return {"N": repr(number)}


def _to_batch(item: Item) -> Batch:
    data = Data(item["data"]["B"], item["token"]["S"], int(item["count"]["N"]))
    return Batch(int(item["sk"]["S"]), item["commit"]["S"], data, int(item["version"]["N"]), "expires" in item)


def _to_blob(item: Item) -> Blob:
    data = Data(b"", item["token"]["S"], int(item["count"]["N"]))
    return Blob(data, int(item["size"]["N"]), float(item["stored"]["N"]))
