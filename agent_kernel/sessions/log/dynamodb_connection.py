"""A connection to DynamoDB. It is opened at the first use, and opened again after it broke."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agent_kernel.core.errors import InvalidRequest, StoreError
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.client_holder import ClientHolder

VERSION = 1
CREATION_S = 60.0
HEAD = "head"
"""Sort key of the item with the number of the newest batch (the head). It comes after the sort keys of all batches,
which are numbers."""
Item = dict[str, Any]


class DynamoConnection:
    """A connection to the table that a URL names, for one thread at a time. Access keys come from the standard AWS
    configuration (environment, profile or role). The first use creates the table if it does not exist. The partition
    keys of this log begin with ``prefix``. ``name`` is the name for messages to people. Raises InvalidRequest for a URL
    that cannot be read, or if botocore is not installed."""

    def __init__(self, url: str) -> None:
        try:
            import botocore.exceptions
            import botocore.session
        except ImportError:
            raise log_errors.missing_package("dynamodb", "botocore", "dynamodb") from None
        self._botocore = botocore
        self._url = url
        try:
            self._region, self.table, options = _read_url(url)
        except ValueError:
            raise InvalidRequest(
                "The URL of the DynamoDB store cannot be read.",
                hint="Use dynamodb://REGION/TABLE, for example dynamodb://eu-central-1/chats; the query may have"
                " prefix=NAME, profile=NAME and endpoint=URL. The URL must not contain access keys.",
            ) from None
        self.prefix = options.get("prefix", "")
        self._profile, self._endpoint = options.get("profile"), options.get("endpoint")
        self.name = f"The DynamoDB store {self.table}{self.prefix and ' ' + self.prefix} in {self._region}"
        self._client = ClientHolder(self._connect, self._prepare)
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Return the time of DynamoDB, whose replies state it in whole seconds."""
        if self._client.client is None:
            self.call("get_item", TableName=self.table, Key=self.key("log", HEAD), ConsistentRead=True)
        return time.monotonic() + self._offset

    def key(self, partition: str, name: str) -> Item:
        return {"pk": {"S": self.prefix + partition}, "sk": {"S": name}}

    def close(self) -> None:
        self._client.close()

    def call(self, operation: str, *, keep: str = "", **arguments: Any) -> Item:
        """Send one request; the library repeats it when the connection breaks. Raises StoreError, or the library's own
        error if its code is in ``keep``.
        """
        errors = self._botocore.exceptions
        try:
            reply: Item = getattr(self._client.open(), operation)(**arguments)
        except errors.ClientError as error:
            if error.response["Error"]["Code"] == keep:
                raise
            raise self._to_store_error(error) from None
        except errors.BotoCoreError as error:
            self.close()
            raise self._to_store_error(error) from None
        self._note_time(reply)
        return reply

    def write_if(self, operation: str, **arguments: Any) -> bool:
        """Write one item, or return False if its condition does not hold."""
        try:
            self.call(operation, keep="ConditionalCheckFailedException", TableName=self.table, **arguments)
        except self._botocore.exceptions.ClientError:
            return False
        return True

    def transact(self, changes: Sequence[Item]) -> bool:
        """Write all items in one transaction, or return False if a condition does not hold or another writer changes
        the same items.
        """
        try:
            self.call("transact_write_items", keep="TransactionCanceledException", TransactItems=changes)
        except self._botocore.exceptions.ClientError as error:
            reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
            if reasons & {"ConditionalCheckFailed", "TransactionConflict"}:
                return False
            raise self._to_store_error(error) from None
        return True

    def _note_time(self, reply: Item) -> None:
        date = reply["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date:
            # The header has whole seconds, rounded down, so the true offset is up to one second larger and never
            # smaller.
            least = parsedate_to_datetime(date).timestamp() - time.monotonic()
            self._offset = min(max(self._offset, least), least + 1)

    def _connect(self) -> Any:
        from botocore.config import Config

        return self._botocore.session.Session(profile=self._profile).create_client(
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

    def _prepare(self, client: Any) -> None:
        """Create the table, and in it the item with the store's version, if they do not exist. Raises StoreCorrupt if
        the table has a newer version."""
        key = self.key("log", HEAD)
        try:
            found = client.get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        except client.exceptions.ResourceNotFoundException:
            self._create_table(client)
            found = None
        if found is None:
            head = {**key, "last": to_attribute(0), "version": to_attribute(VERSION)}
            with suppress(client.exceptions.ConditionalCheckFailedException):  # another server created it just now
                client.put_item(TableName=self.table, Item=head, ConditionExpression="attribute_not_exists(pk)")
            found = client.get_item(TableName=self.table, Key=key, ConsistentRead=True)["Item"]
        version = int(found["version"]["N"])
        if version != VERSION:
            raise log_errors.newer_format(self.name, version, VERSION, "table or prefix")

    def _create_table(self, client: Any) -> None:
        """Create the table with payment per request, or wait for another server that is creating it."""
        with suppress(client.exceptions.ResourceInUseException):  # another server is creating the table
            client.create_table(
                TableName=self.table,
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
                BillingMode="PAY_PER_REQUEST",
            )
        end = time.monotonic() + CREATION_S
        while client.describe_table(TableName=self.table)["Table"]["TableStatus"] != "ACTIVE":
            if time.monotonic() > end:
                raise StoreError(f"{self.name} is still being created.", hint="Try again in a minute.")
            time.sleep(0.5)
        expiry = client.describe_time_to_live(TableName=self.table)["TimeToLiveDescription"]
        if expiry.get("TimeToLiveStatus", "DISABLED") == "DISABLED":
            expires = {"Enabled": True, "AttributeName": "expires"}
            try:
                client.update_time_to_live(TableName=self.table, TimeToLiveSpecification=expires)
            except self._botocore.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "ValidationException":
                    raise
                # A ValidationException means that another server has enabled the expiry at the same moment.

    def _to_store_error(self, error: Exception) -> StoreError:
        return log_errors.unusable(
            self.name,
            log_errors.first_line(error),
            "Check the region, the table, and the keys of access of AWS (AWS_PROFILE or AWS_ACCESS_KEY_ID). The"
            " store works again as soon as DynamoDB can be reached.",
        )


def _read_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Return the region, the table and the options. Raises ValueError if the URL has another form or an unknown
    option."""
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


def to_attribute(number: float) -> Item:
    """Return a number as DynamoDB writes it in requests."""
    return {"N": repr(number)}
