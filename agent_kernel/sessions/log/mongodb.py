"""The log of several servers in MongoDB: batches of entries in four collections. No transactions are used, so a server
outside a replica set is sufficient. ``prefix`` in the URL replaces ``agent_kernel`` in the names:

- ``agent_kernel_head``: one document with the number of the newest batch and, in ``tail``, that batch. Replacing it,
  if it still has the number that the writer knows, is the commit;
- ``agent_kernel_batches``: the batches by their number. The newest batch is copied there after its commit, by its
  writer or else by the next writer; batches without entries expire by a TTL index;
- ``agent_kernel_pieces``: parts of batches and media that are too large for a document;
- ``agent_kernel_blobs``: which media there are, and when they were stored or touched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.batch_table import STUB_KEPT_S, Batch, BatchPage, Blob, Data
from agent_kernel.sessions.log.batched_log import BatchedLog
from agent_kernel.sessions.log.client_holder import ClientHolder, take_option

T = TypeVar("T")
VERSION = 1
PAGE = 200
"""Maximum number of batches that one ``tail`` returns."""
PIECE_BYTES = 8 * 1024 * 1024
"""Maximum number of bytes in one piece; MongoDB refuses documents of more than 16 MiB."""
DATABASE, PREFIX = "agent-kernel", "agent_kernel"
"""DATABASE is used if the URL names no database. The names of the collections begin with PREFIX."""
CLOCK_KEPT_S = 10.0
"""Seconds after which the difference between the clock of the server and our own is measured again."""
_HEAD = "head"


def open_mongodb(url: str) -> BatchedLog:
    """Return the log in the database that ``url`` names (mongodb://... or mongodb+srv://...). It connects at its first
    use. Raises InvalidRequest for a URL that cannot be read, or if pymongo is not installed.
    """
    return BatchedLog(MongoTable(url))


class MongoTable:
    """A BatchTable in a MongoDB database. Reads and writes use the primary and wait for a majority, whatever the URL
    says, so that no acknowledged entry is lost when another node becomes the primary."""

    def __init__(self, url: str) -> None:
        try:
            import pymongo
        except ImportError:
            raise log_errors.missing_package("mongodb", "pymongo", "mongodb") from None
        self._pymongo = pymongo
        try:
            self._url, prefix = take_option(url, "prefix", r"[\w.-]{1,100}")
            options, hosts = _read_url(self._url, pymongo)
        except (ValueError, pymongo.errors.PyMongoError):
            # The library's message quotes parts of the URL, which may include the password.
            raise InvalidRequest(
                "The URL of the MongoDB store is not valid.",
                hint="Use mongodb://USER:PASSWORD@HOST:PORT/DATABASE, with %-escapes for special characters;"
                " mongodb+srv://HOST/DATABASE looks up the hosts; the query may have prefix=NAME.",
            ) from None
        self._database_name = options["database"] or DATABASE
        self._prefix = prefix or PREFIX
        self._given = {name.lower() for name in options["options"]}
        self.name = f"The MongoDB store {self._database_name} at {hosts}"
        self._client = ClientHolder(self._connect, self._prepare, self._release)
        self._session: Any = None
        self._seen: tuple[Any, Any] = (None, None)
        """The cluster time and the operation time that the previous client session saw last; (None, None) if there are
        none, as on a server without a cluster."""
        self._collections: dict[str, Any] = {}
        self._unflushed: dict[str, Any] | None = None
        self._clock: tuple[float, float] = (0.0, float("-inf"))
        """The server's time minus ``time.monotonic()``, and when it was measured."""

    # ------------------------------------------------------------------------------------------- batches

    def now(self) -> float:
        def measure(client: Any) -> float:
            before = time.monotonic()
            server_time: datetime = client.admin.command("hello")["localTime"]
            return _seconds(server_time) - (before + time.monotonic()) / 2

        if time.monotonic() - self._clock[1] > CLOCK_KEPT_S:
            self._clock = (self._use(measure), time.monotonic())
        return time.monotonic() + self._clock[0]

    def tail(self, after: int) -> BatchPage:
        now = self.now()
        head = self._run("head", lambda head, options: head.find_one({"_id": _HEAD}, **options))
        if head is None:
            return BatchPage(now, 0, [])
        newest, found = head["last"], list[dict[str, Any]]()
        if newest > after:
            self._unflushed = None  # an older batch was copied before a newer one replaced it in the head
        if newest > after + 1:
            query = {"_id": {"$gt": after}}
            found = self._run("batches", lambda all, options: [*all.find(query, **options).sort("_id").limit(PAGE)])
        more = len(found) == PAGE
        last = found[-1]["_id"] if found else after
        if not more and last < newest:
            self._unflushed = head["tail"]
            found.append(head["tail"])
        return BatchPage(now, max(newest, last), [_to_batch(document) for document in found], more)

    def append(self, batch: Batch) -> bool:
        self._flush()
        document = {"_id": batch.number, **_to_values(batch)}
        expected = {"_id": _HEAD, "last": batch.number - 1}
        change = {"$set": {"last": batch.number, "tail": document}, "$currentDate": {"time": True}}
        before = self._run(
            "head",
            lambda head, options: head.find_one_and_update(expected, change, projection={"_id": True}, **options),
        )
        if before is None:
            return False
        self._unflushed = document
        self._flush()
        return True

    def _flush(self) -> None:
        """Copy the newest batch to the collection of batches, before the next batch replaces it in the head."""
        document = self._unflushed
        if document is not None:
            with suppress(self._pymongo.errors.DuplicateKeyError):  # another writer has copied the batch
                self._run("batches", lambda all, options: all.insert_one(document, **options), unique=True)
            self._unflushed = None

    def fetch(self, numbers: Collection[int]) -> Sequence[Batch]:
        query = {"_id": {"$in": sorted(numbers)}}
        found = self._run("batches", lambda all, options: [*all.find(query, **options).sort("_id")])
        return [_to_batch(document) for document in found]

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        end = datetime.fromtimestamp(self.now() + STUB_KEPT_S, UTC)
        changes = [
            self._pymongo.UpdateOne(
                {"_id": batch.number, "version": batch.version - 1},
                {"$set": _to_values(batch) | ({"expires": end} if batch.expires else {})},
            )
            for batch in batches
        ]
        result = self._run("batches", lambda all, options: all.bulk_write(changes, ordered=False, **options))
        return bool(result.matched_count == len(batches))

    # ------------------------------------------------------------------------------------------- pieces

    def put_pieces(self, token: str, data: bytes) -> int:
        parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)] or [b""]
        for number, part in enumerate(parts):
            change = {"$set": {"token": token, "data": part}, "$currentDate": {"stored": True}}
            self._update("pieces", {"_id": f"{token}:{number}"}, change, upsert=True)
        return len(parts)

    def get_pieces(self, token: str, count: int) -> bytes | None:
        parts = []
        for number in range(count):
            query = {"_id": f"{token}:{number}"}
            found = self._find("pieces", query)
            if found is None:
                return None
            parts.append(bytes(found["data"]))
        return b"".join(parts)

    def delete_pieces(self, token: str, count: int) -> None:
        self._run("pieces", lambda pieces, options: pieces.delete_many({"token": token}, **options))

    def old_pieces(self, until: float) -> Collection[tuple[str, int]]:
        query = {"stored": {"$lte": datetime.fromtimestamp(until, UTC)}}
        found = self._run("pieces", lambda pieces, options: [*pieces.find(query, {"token": True}, **options)])
        return {(document["token"], 0) for document in found}

    # ------------------------------------------------------------------------------------------- media

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        values = {"token": data.token, "count": data.count, "size": size}
        change = {"$setOnInsert": values, "$currentDate": {"stored": True}}
        try:
            done = self._run(
                "blobs",
                lambda blobs, options: blobs.update_one({"_id": key}, change, upsert=True, **options),
                unique=True,
            )
        except self._pymongo.errors.DuplicateKeyError:
            return False  # another server created it at the same moment
        return done.upserted_id is not None

    def get_blob(self, key: str) -> Blob | None:
        found = self._find("blobs", {"_id": key})
        return None if found is None else _to_blob(found)

    def touch_blob(self, key: str) -> bool:
        return bool(self._update("blobs", {"_id": key}, {"$currentDate": {"stored": True}}).matched_count)

    def blobs(self) -> Iterator[tuple[str, Blob]]:
        for document in self._run("blobs", lambda blobs, options: [*blobs.find({}, **options)]):
            yield document["_id"], _to_blob(document)

    def delete_blob(self, key: str, until: float) -> bool:
        query = {"_id": key, "stored": {"$lte": datetime.fromtimestamp(until, UTC)}}
        self._run("blobs", lambda blobs, options: blobs.delete_one(query, **options))
        return self.get_blob(key) is None

    # ------------------------------------------------------------------------------------------- connection

    def close(self) -> None:
        self._client.close()

    def _release(self, client: Any) -> None:
        session, self._session, self._collections = self._session, None, {}
        if session is not None:
            self._seen = (session.cluster_time, session.operation_time)
            session.end_session()
        client.close()

    def _find(self, name: str, query: Mapping[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._run(name, lambda items, options: items.find_one(query, **options))
        return found

    def _update(self, name: str, query: Mapping[str, Any], change: Mapping[str, Any], *, upsert: bool = False) -> Any:
        return self._run(name, lambda items, options: items.update_one(query, change, upsert=upsert, **options))

    def _run(self, name: str, work: Callable[[Any, dict[str, Any]], T], *, unique: bool = False) -> T:
        """Run ``work`` on a collection, and again on a new connection if the connection broke. With ``unique``, the
        error for a duplicate key is raised unchanged and not as StoreError.
        """

        return self._use(lambda _: work(self._collections[name], {"session": self._session}), unique=unique)

    def _use(self, work: Callable[[Any], T], *, unique: bool = False) -> T:
        errors = self._pymongo.errors

        def is_broken(error: Exception) -> bool:
            # If no server was found within the time limit of the URL, the call is not repeated.
            return isinstance(error, errors.AutoReconnect) and not isinstance(error, errors.ServerSelectionTimeoutError)

        try:
            return self._client.use(work, is_broken)
        except errors.PyMongoError as error:
            if unique and isinstance(error, errors.DuplicateKeyError):
                raise
            self.close()
            raise log_errors.unusable(self.name, log_errors.first_line(error)) from None

    def _connect(self) -> Any:
        limits = {"serverSelectionTimeoutMS": 10_000, "connectTimeoutMS": 10_000, "socketTimeoutMS": 60_000}
        return self._pymongo.MongoClient(
            self._url,
            appname="agent-kernel",
            tz_aware=True,
            **{name: value for name, value in limits.items() if name.lower() not in self._given},
        )

    def _prepare(self, client: Any) -> None:
        """Create the head and the indexes if they do not exist. Raises StoreCorrupt if they have a newer version."""
        from pymongo.read_concern import ReadConcern
        from pymongo.write_concern import WriteConcern

        database = client.get_database(
            self._database_name,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", wtimeout=20_000),
            read_preference=self._pymongo.ReadPreference.PRIMARY,
        )
        collections = {name: database[f"{self._prefix}_{name}"] for name in ("head", "batches", "pieces", "blobs")}
        with suppress(self._pymongo.errors.DuplicateKeyError):  # another server created it at the same moment
            collections["head"].update_one(
                {"_id": _HEAD}, {"$setOnInsert": {"last": 0, "version": VERSION}}, upsert=True
            )
        version = collections["head"].find_one({"_id": _HEAD})["version"]
        if version != VERSION:
            raise log_errors.newer_format(self.name, version, VERSION, "database or prefix")
        collections["batches"].create_index("expires", expireAfterSeconds=0)
        collections["pieces"].create_index("token")
        collections["pieces"].create_index("stored")
        # In a session, a read sees the results of all earlier calls, also on a node that has just become the primary.
        self._session = client.start_session(causal_consistency=True)
        if None not in self._seen:
            self._session.advance_cluster_time(self._seen[0])
            self._session.advance_operation_time(self._seen[1])
        self._collections = collections


def _read_url(url: str, pymongo: Any) -> tuple[dict[str, Any], str]:
    """Return the parts of the URL, and its hosts without user and password. Raises ValueError or PyMongoError for a URL
    that cannot be read."""
    # The library looks up the hosts of mongodb+srv only when it connects; otherwise the syntax is the same as that of
    # mongodb.
    scheme, _, rest = url.partition("://")
    if "#" in rest:
        raise ValueError("A # that is not escaped")
    parts = pymongo.uri_parser.parse_uri(f"mongodb://{rest}")
    hosts = ", ".join(host if scheme.endswith("srv") else f"{host}:{port}" for host, port in parts["nodelist"])
    if not re.fullmatch(r"[\w.:/\[\], -]+", hosts):
        raise ValueError("hosts")
    return parts, hosts


def _to_values(batch: Batch) -> dict[str, Any]:
    return {
        "commit": batch.commit,
        "data": batch.data.inline,
        "token": batch.data.token,
        "count": batch.data.count,
        "version": batch.version,
    }


def _to_batch(document: Mapping[str, Any]) -> Batch:
    data = Data(bytes(document["data"]), document["token"], document["count"])
    return Batch(document["_id"], document["commit"], data, document["version"], "expires" in document)


def _to_blob(document: Mapping[str, Any]) -> Blob:
    return Blob(Data(b"", document["token"], document["count"]), document["size"], _seconds(document["stored"]))


def _seconds(time: datetime) -> float:
    return time.timestamp()
