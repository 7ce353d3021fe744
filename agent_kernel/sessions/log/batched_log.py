"""A log in a database that can write only one item, or a few, at once: MongoDB and DynamoDB.

A commit becomes one numbered batch. Appending the batch after the newest one is the only step that other servers can
see. A writer that appends batch n + 1 therefore knows all batches up to n, and can check the ends of streams in memory:
every log keeps an index of all batches that it has read. Large batches are first written as pieces, which no reader
sees before a batch names them. Entries that a later entry replaces are removed from their batches after the commit. If
the writer dies before that, readers skip these entries, and ``drop_blobs``, or the next server that starts, removes
them.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from agent_kernel.core.errors import StoreCorrupt, StoreError
from agent_kernel.sessions.log.batch_table import (
    INLINE_BYTES,
    REWRITTEN_AT_ONCE,
    Batch,
    BatchPage,
    BatchTable,
    Data,
)
from agent_kernel.sessions.log.client_holder import NamedClient
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail

MAX_ATTEMPTS = 200
"""Maximum number of attempts of a commit or a deletion, when other servers write at the same moment."""
COMMITS_KEPT = 10_000
"""Number of latest commits that a log remembers, so that a writer that received no reply can repeat its commit."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One entry of a batch. An entry without a body was removed; only its position is known."""

    namespace: str
    position: int
    session: str
    replaces: bool
    body: bytes | None

    @property
    def stream(self) -> Stream:
        return self.namespace, self.session


@dataclass(slots=True)
class _Index:
    """The data that a log derives from the batches up to number ``newest``. ``leftovers`` are batches with replaced
    entries that are still to be removed; ``complete`` is true once all batches have been read.
    """

    newest: int = 0
    complete: bool = False
    positions: dict[str, int] = field(default_factory=dict)
    heads: dict[Stream, int] = field(default_factory=dict)
    replaced: dict[Stream, int] = field(default_factory=dict)
    places: dict[Stream, set[int]] = field(default_factory=dict)
    commits: dict[str, Mapping[Stream, int]] = field(default_factory=dict)
    tokens: dict[int, Data] = field(default_factory=dict)
    leftovers: set[int] = field(default_factory=set)

    def note(self, batch: Batch, rows: Sequence[_Row], *, own: bool = False) -> None:
        """Add the next batch to the index. Its writer removes the entries that it replaces. An index that has not read
        all batches cannot know whether that writer is alive, so it marks such entries as leftovers.
        """
        for row in rows:
            self.positions[row.namespace] = max(row.position, self.positions.get(row.namespace, 0))
            self.heads[row.stream] = row.position
            if row.replaces:
                self.replaced[row.stream] = row.position
                before = self.places.pop(row.stream, set())
                if own or not self.complete:
                    self.leftovers |= before
            if row.body is not None:
                self.places.setdefault(row.stream, set()).add(batch.number)
        if batch.data.token:
            self.tokens[batch.number] = batch.data
        self.newest = batch.number
        self.commits[batch.commit] = {row.stream: row.position for row in rows}
        for old in [*islice(self.commits, max(0, len(self.commits) - COMMITS_KEPT))]:
            del self.commits[old]

    def is_obsolete(self, row: _Row) -> bool:
        return row.position < self.replaced.get(row.stream, 0)

    def number(self, appends: Sequence[Append], after: Mapping[str, int]) -> list[_Row]:
        """Return the rows of a commit with their positions. Raises LogConflict."""
        if any(self.positions.get(name, 0) != last for name, last in after.items()):
            raise LogConflict
        if any(self.heads.get((append.namespace, append.session), 0) != append.expect for append in appends):
            raise LogConflict
        positions, rows = dict[str, int](), []
        for change in appends:
            if change.body is not None:
                last = positions.get(change.namespace, self.positions.get(change.namespace, 0))
                positions[change.namespace] = last + 1
                rows.append(_Row(change.namespace, last + 1, change.session, change.replaces, change.body))
        return rows


class BatchedLog(NamedClient):
    """A LogStore on a BatchTable. Only one server at a time can write to a log."""

    compares = True

    def __init__(self, table: BatchTable) -> None:
        self.name = table.name
        self._table = table
        self._index = _Index()
        self._read_up_to: tuple[int, Mapping[str, int]] = (0, {})
        self._unsettled: set[str] = set()
        """Ids of commits of this log whose replies were lost; these commits may have been stored."""

    # ------------------------------------------------------------------------------------------- reading

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        start, delivered = self._read_up_to
        if any(after.get(namespace, 0) < position for namespace, position in delivered.items()):
            start = 0
        page, found = self._read_page(start)
        rows = [row for _, part in found for row in part if row.position > after.get(row.namespace, 0)]
        entries = [
            Entry(row.namespace, row.position, row.session, row.replaces, row.body)
            for row in sorted(rows, key=lambda row: (row.namespace, row.position))
            if row.body is not None and not self._index.is_obsolete(row)
        ]
        if not page.more and any(self._index.positions.get(name, 0) < last for name, last in after.items()):
            raise self._loss_error()
        seen = dict(after) | {entry.namespace: entry.position for entry in entries}
        self._read_up_to = (found[-1][0].number if found else start, seen)
        return Tail(page.now, entries, page.more)

    def _read_page(self, start: int) -> tuple[BatchPage, list[tuple[Batch, list[_Row]]]]:
        page = self._table.tail(start)
        if not page.more and page.newest < self._index.newest:
            raise self._loss_error()
        found = [(batch, self._rows(batch)) for batch in page.batches]
        for batch, rows in found:
            if batch.number > self._index.newest:
                self._index.note(batch, rows, own=batch.commit in self._unsettled)
        if not page.more:
            self._index.newest = max(self._index.newest, page.newest)
            self._index.complete = True
        return page, found

    def _catch_up(self) -> bool:
        """Read the batches that are not in the index yet. Return whether there were any."""
        before, more = self._index.newest, True
        while more:
            more = self._read_page(self._index.newest)[0].more
        return self._index.newest > before

    def _rows(self, batch: Batch) -> list[_Row]:
        for _ in range(MAX_ATTEMPTS):
            data = self._load(batch.data)
            if data is not None:
                return _unpack(data)
            # The batch was rewritten after it was read, and its former pieces no longer exist.
            found = self._table.fetch([batch.number])
            if not found:
                return []
            if found[0].version == batch.version:
                raise StoreCorrupt(f"{self.name} has a batch without its bytes (number {batch.number}).")
            batch = found[0]
        raise self._contention_error()

    # ------------------------------------------------------------------------------------------- writing

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        self._unsettled.add(id)
        try:
            positions = self._commit(id, appends, after or {})
        except LogConflict:
            self._unsettled.discard(id)
            raise
        self._unsettled.discard(id)
        self._remove_leftovers()
        return positions

    def _commit(self, id: str, appends: Sequence[Append], after: Mapping[str, int]) -> Mapping[Stream, int]:
        for attempt in range(MAX_ATTEMPTS):
            if id in self._index.commits:
                return self._index.commits[id]
            try:
                rows = self._index.number(appends, after)
            except LogConflict:
                if not self._catch_up():
                    raise
                continue
            if not rows:
                # Nothing is appended, so only a read can determine whether the positions are still the last ones.
                if not self._catch_up():
                    return {}
                continue
            batch = Batch(self._index.newest + 1, id, self._store(_pack(rows)))
            if self._table.append(batch):
                self._index.note(batch, rows, own=True)
                continue
            self._catch_up()
            if batch.data.token and batch.data not in self._index.tokens.values():
                self._table.delete_pieces(batch.data.token, batch.data.count)
            time.sleep(random.random() * 0.002 * min(attempt, 20))
        raise self._contention_error()

    def _remove_leftovers(self) -> None:
        """Remove the entries that were replaced. Another writer may do the same at the same time."""
        while self._index.leftovers:
            numbers = sorted(self._index.leftovers)[:REWRITTEN_AT_ONCE]
            for _ in range(MAX_ATTEMPTS):
                before = self._table.fetch(numbers)
                rewritten = [*self._without_obsolete(before)]
                done = not rewritten or self._table.rewrite(rewritten)
                self._delete_unnamed([*before, *rewritten])
                if done:
                    break
            else:
                raise self._contention_error()
            self._index.leftovers -= {*numbers}

    def _without_obsolete(self, batches: Sequence[Batch]) -> Iterator[Batch]:
        for batch in batches:
            rows = self._rows(batch)
            if any(row.body is not None and self._index.is_obsolete(row) for row in rows):
                left = [replace(row, body=None) if self._index.is_obsolete(row) else row for row in rows]
                empty = all(row.body is None for row in left)
                yield replace(batch, data=self._store(_pack(left)), version=batch.version + 1, expires=empty)

    def _delete_unnamed(self, batches: Sequence[Batch]) -> None:
        """Delete the pieces of versions that were never committed."""
        pieces = {batch.data for batch in batches if batch.data.token}
        if pieces:
            committed = {batch.data for batch in self._table.fetch({batch.number for batch in batches})}
            for data in pieces - committed:
                self._table.delete_pieces(data.token, data.count)

    # ------------------------------------------------------------------------------------------------ storing bytes

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        key = _blob_key(namespace, digest)
        for _ in range(MAX_ATTEMPTS):
            if self._table.touch_blob(key):
                return
            token = uuid.uuid4().hex
            stored = Data(token=token, count=self._table.put_pieces(token, data))
            if self._table.create_blob(key, stored, len(data)):
                return
            held = self._table.get_blob(key)
            if held is not None and held.data == stored:  # the entry was created, but the reply was lost
                return
            self._table.delete_pieces(stored.token, stored.count)
        raise self._contention_error()

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        key = _blob_key(namespace, digest)
        blob = self._table.get_blob(key)
        while blob is not None:
            data = self._load(blob.data)
            if data is not None:
                return data
            before, blob = blob, self._table.get_blob(key)
            if blob is not None and blob.data == before.data:
                raise StoreCorrupt(f"{self.name} has a medium without its bytes.")
        return None

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        for digest in digests:
            self._table.touch_blob(_blob_key(namespace, digest))

    def drop_blobs(self, referenced: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        """Delete unused media as LogStore describes, and the remains of writers that were stopped: replaced entries,
        and pieces that no batch names.
        """
        until = self._table.now() - grace
        pieces = self._table.old_pieces(until)  # this read precedes that of the batches and blobs, which name pieces
        self._index = _Index()
        self._catch_up()
        self._remove_leftovers()
        kept_keys, freed = {_blob_key(*place) for place in referenced}, 0
        live = {data.token for data in self._index.tokens.values()}
        for key, blob in self._table.blobs():
            if key not in kept_keys and blob.stored <= until and self._table.delete_blob(key, until):
                self._table.delete_pieces(blob.data.token, blob.data.count)
                freed += blob.size
            live.add(blob.data.token)
        for token, count in pieces:
            if token not in live:
                self._table.delete_pieces(token, count)
        return freed

    def bus(self) -> None:
        """Return None: servers of this database cannot send each other messages."""

    def close(self) -> None:
        self._table.close()

    def _store(self, data: bytes) -> Data:
        if len(data) <= INLINE_BYTES:
            return Data(data)
        token = uuid.uuid4().hex
        return Data(token=token, count=self._table.put_pieces(token, data))

    def _load(self, data: Data) -> bytes | None:
        return self._table.get_pieces(data.token, data.count) if data.token else data.inline

    def _contention_error(self) -> StoreError:
        return StoreError(
            f"{self.name}: this write did not succeed, because other servers kept writing.",
            hint="Nothing was written. Try again.",
        )

    def _loss_error(self) -> StoreCorrupt:
        return StoreCorrupt(
            f"{self.name} lost acknowledged entries: it was emptied, or restored from an older copy.",
            hint="Restart the servers of agent-kernel.",
        )


def _blob_key(namespace: str, digest: str) -> str:
    """Return a key that is valid in every database, whatever characters the namespace has."""
    return hashlib.sha256(json.dumps([namespace, digest]).encode()).hexdigest()


def _pack(rows: Sequence[_Row]) -> bytes:
    heads = [
        [row.namespace, row.position, row.session, row.replaces, -1 if row.body is None else len(row.body)]
        for row in rows
    ]
    head = json.dumps(heads, separators=(",", ":")).encode()
    return struct.pack(">I", len(head)) + head + b"".join(row.body or b"" for row in rows)


def _unpack(data: bytes) -> list[_Row]:
    (length,) = struct.unpack_from(">I", data)
    at, rows = 4 + length, []
    for namespace, position, session, replaces, size in json.loads(data[4:at]):
        rows.append(_Row(namespace, position, session, replaces, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return rows
