"""The session store of one machine: a SQLite file that several processes of one user can share."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, Usage
from agent_kernel.core.session import (
    LEASE_S,
    Branch,
    Item,
    OpeningMatch,
    Owner,
    SearchHit,
    Session,
    SessionKey,
    SessionQuery,
    SessionUpdate,
    Summary,
    Turn,
    check_id,
)
from agent_kernel.core.session_tree import SessionSnapshot
from agent_kernel.sessions import serialization
from agent_kernel.sessions.blob_files import BlobFiles
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.sqlite_parts import SqliteFiles, SqliteGrants, SqliteMaintenance
from agent_kernel.sessions.tables import (
    bindings,
    branches,
    conversation_openings,
    items,
    search,
    segments,
    session_copy,
    sessions,
    summaries,
    turns,
)
from agent_kernel.sessions.tables.quota import Quota, QuotaGuard

T = TypeVar("T")
NONE = Quota()
REASON = "The server stopped while this turn was running."


class SqliteStore(SqliteFiles, SqliteGrants, SqliteMaintenance):
    """A SessionStore in the file ``path``, which is created at first use with mode 0600 (its directory with 0700). If
    ``path`` is None, the store is in memory.

    Every method is one transaction on the store's own thread. If the caller is cancelled, CancelledError is raised
    after the transaction has ended, or after it was removed from the queue before it began. Media of more than 16 KiB
    are stored as files in ``PATH.blobs``. With ``durable`` every write waits for the disk. ``quota`` limits each
    namespace; writes beyond it raise QuotaExceeded. ``clock`` returns seconds since the epoch. Besides the errors that
    the protocol names, methods raise StoreFull, StoreCorrupt or StoreError; the store can be used again after each of
    them.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        durable: bool = False,
        quota: Quota = NONE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        beside = None if self.path is None else BlobFiles(self.path.with_name(f"{self.path.name}.blobs"))
        self._database = Database(self.path, durable=durable, files=beside)
        self._guard = QuotaGuard(quota)
        self._clock = clock

    async def _growing(self, key: SessionKey, work: Callable[[sqlite3.Connection], T], *namespaces: str) -> T:
        """Check the quota, then run a write that creates a session or a turn. ``namespaces`` are the further
        namespaces that the write uses, besides that of ``key``. Raises QuotaExceeded."""

        def run_within_quota(db: sqlite3.Connection) -> T:
            self._guard.check(db, key, self._clock())
            return work(db)

        return await self._database.write(run_within_quota, key.namespace, *namespaces)

    async def _read(self, key: SessionKey, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read that uses only rows of the namespace of ``key``."""
        return await self._database.read(work, key.namespace)

    async def _write(self, key: SessionKey, work: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        """Run a write that uses only rows of the namespace of ``key``."""
        return await self._database.write(work, key.namespace, frees=frees)

    # ------------------------------------------------------------------------------------------- sessions

    async def create(self, key: SessionKey, title: str = "") -> Session:
        serialization.text(title, "title")
        return await self._growing(key, lambda db: sessions.create(db, key, title, self._clock()))

    async def info(self, key: SessionKey) -> Session | None:
        """Return a session with its counts of turns and items, or None."""
        return await self._read(key, lambda db: sessions.select_session(db, key, counts=True))

    async def idle(self, until: float) -> list[Session]:
        """Return the sessions of all namespaces that have not been used since ``until`` (seconds since the epoch) and
        have no open turn, longest unused first."""
        return await self._database.read(lambda db: sessions.select_idle(db, until))

    async def excess(self, cap: int, namespace: str | None = None) -> list[Session]:
        """Return the sessions without an open turn that exceed the number ``cap`` in the namespace (None: in each
        namespace), longest unused first."""
        return await self._database.read(lambda db: sessions.select_excess(db, cap, namespace))

    async def rename(self, key: SessionKey, title: str) -> None:
        """Set the title of a session. Raises SessionNotFound."""
        await self.describe(key, SessionUpdate(title=title))

    async def describe(self, key: SessionKey, change: SessionUpdate) -> Session:
        update = serialization.validate_description(change)
        return await self._write(key, lambda db: sessions.describe(db, key, update, self._clock()))

    async def touch(self, key: SessionKey) -> None:
        await self._write(key, lambda db: sessions.touch(db, key, self._clock()))

    async def clear(self, key: SessionKey) -> None:
        await self._write(key, lambda db: sessions.clear(db, key, self._clock()), frees=True)

    async def delete(self, key: SessionKey, revision: int | None = None) -> bool:
        return await self._write(key, lambda db: sessions.delete(db, key, revision), frees=True)

    # ------------------------------------------------------------------------------------------- turns

    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        fresh = serialization.validate_turn(turn)
        return await self._growing(fresh.key, lambda db: turns.open_turn(db, fresh, owner, self._clock()))

    async def append(self, turn: Turn, owner: Owner, messages: Sequence[Message], expect_seq: int) -> list[Item]:
        batch = tuple(messages)
        return await self._write(
            turn.key, lambda db: turns.append(db, turn, owner, batch, expect_seq=expect_seq, now=self._clock())
        )

    async def append_at(
        self,
        turn: Turn,
        owner: Owner,
        messages: Sequence[Message],
        expect_seq: int,
        *,
        behind: int | None = None,
        earlier: Sequence[Sequence[Message]] = (),
    ) -> list[Item]:
        batch, before = tuple(messages), tuple(map(tuple, earlier))
        return await self._write(
            turn.key,
            lambda db: turns.append_at(
                db, turn, owner, batch, expect_seq=expect_seq, behind=behind, earlier=before, now=self._clock()
            ),
        )

    async def heartbeat(self, turn: Turn, owner: Owner) -> bool:
        return await self._write(turn.key, lambda db: turns.heartbeat(db, turn, owner, self._clock()))

    async def close_turn(
        self,
        turn: Turn,
        owner: Owner,
        state: TurnState,
        reason: str = "",
        usage: Usage | None = None,
        *,
        record: Mapping[str, Any] | None = None,
    ) -> bool:
        check_closing(state, reason)
        closing = turns.TurnClosing(state, reason, usage.to_json() if usage else {}, dict(record or {}))
        return await self._write(turn.key, lambda db: turns.close_turn(db, turn, owner, closing, self._clock()))

    async def recover(self) -> list[Turn]:
        now = self._clock()
        leases = await self._database.read(
            lambda db: turns.select_abandoned(db, lambda owner, seen: is_stale(owner, seen, now))
        )
        closed = [await self._take_over(*lease) for lease in leases]
        return [turn for turn in closed if turn is not None]

    async def _take_over(self, turn: Turn, owner: Owner, stale_heartbeat: float) -> Turn | None:
        return await self._write(
            turn.key,
            lambda db: turns.take_over(db, turn, owner, stale_heartbeat, reason=REASON, now=self._clock()),
        )

    async def add_turn(
        self, turn: Turn, messages: Sequence[Message], *, usage: Usage | None = None, expect_seq: int | None = None
    ) -> list[Item]:
        fresh, batch, cost = serialization.validate_turn(turn), tuple(messages), usage.to_json() if usage else {}
        return await self._growing(
            fresh.key, lambda db: turns.add_turn(db, fresh, batch, usage=cost, expect_seq=expect_seq, now=self._clock())
        )

    async def extend_turn(self, turn: Turn, messages: Sequence[Message]) -> list[Item]:
        batch = tuple(messages)
        return await self._write(turn.key, lambda db: turns.extend_turn(db, turn, batch, self._clock()))

    async def add_messages(
        self, key: SessionKey, messages: Sequence[Message], *, record: Mapping[str, Any] | None = None
    ) -> list[Item]:
        batch, facts = tuple(messages), json.loads(serialization.encode_value(dict(record or {})))
        return await self._growing(key, lambda db: turns.add_messages(db, key, batch, record=facts, now=self._clock()))

    async def turn(self, namespace: str, id: str) -> Turn | None:
        return await self._database.read(lambda db: turns.select_turn_by_id(db, namespace, id), namespace)

    async def pop(self, key: SessionKey) -> list[Item]:
        return await self._write(key, lambda db: branches.pop(db, key, self._clock()), frees=True)

    async def rewind(self, key: SessionKey, tail: Sequence[Item]) -> bool:
        expected = tuple(tail)
        return await self._write(key, lambda db: branches.rewind(db, key, expected, self._clock()), frees=True)

    # ------------------------------------------------------------------------------------------- history

    async def latest(
        self, key: SessionKey, limit: int | None = None, *, failed: bool = True, branch: str | None = None
    ) -> list[Item]:
        serialization.validate_limit(limit)
        return await self._read(
            key, lambda db: items.select_latest(db, key, segments.branch_path(db, key, branch), limit, failed=failed)
        )

    async def turns(
        self, key: SessionKey, limit: int | None = None, *, branch: str | None = None, before: str = ""
    ) -> list[Turn]:
        serialization.validate_limit(limit)
        return await self._read(
            key, lambda db: turns.select_turns(db, key, segments.branch_path(db, key, branch), limit, before)
        )

    async def everything(self, key: SessionKey) -> tuple[list[Turn], list[Item]]:
        return await self._read(key, lambda db: (turns.select_all_turns(db, key), items.select_all_items(db, key)))

    async def of_cell(self, key: SessionKey, cell: str, limit: int | None = None) -> list[Turn]:
        serialization.validate_limit(limit)
        return await self._read(key, lambda db: turns.select_cell_turns(db, key, cell, limit))

    async def of_turn(self, turn: Turn) -> list[Item]:
        return await self._read(turn.key, lambda db: items.select_turn_items(db, turn.key, turn.id))

    async def blob(self, key: SessionKey, digest: str) -> bytes | None:
        return await self._read(key, lambda db: items.read_blob(db, key, digest))

    # ------------------------------------------------------------------------------------------- branches

    async def branches(self, key: SessionKey) -> list[Branch]:
        return await self._read(key, lambda db: segments.select_branches(db, key))

    async def branch(self, key: SessionKey, *, before: str | None = None, name: str = "") -> Branch:
        return await self._write(key, lambda db: segments.create_branch(db, key, before, name, self._clock()))

    async def switch(self, key: SessionKey, name: str) -> Branch:
        return await self._write(key, lambda db: segments.switch_branch(db, key, name, self._clock()))

    async def drop_branch(self, key: SessionKey, name: str) -> None:
        await self._write(key, lambda db: branches.remove_branch(db, key, name, self._clock()), frees=True)

    async def siblings(self, key: SessionKey, turn: str) -> list[tuple[str, str]]:
        return await self._read(key, lambda db: branches.select_siblings(db, key, turn))

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        serialization.validate_limit(turns, "number of turns")
        return await self._growing(
            target, lambda db: branches.fork_session(db, key, target, turns, self._clock()), key.namespace
        )

    # ----------------------------------------------------------------------------- summaries, openings of conversations

    async def summaries(self, key: SessionKey, *, branch: str | None = None) -> list[Summary]:
        return await self._read(
            key, lambda db: summaries.select_summaries(db, key, segments.branch_path(db, key, branch))
        )

    async def claim_summary(self, key: SessionKey, owner: Owner) -> bool:
        return await self._write(key, lambda db: summaries.insert_claim(db, key, owner, self._clock()))

    async def add_summary(self, summary: Summary, owner: Owner) -> Summary:
        return await self._write(summary.key, lambda db: summaries.insert_summary(db, summary, owner, self._clock()))

    async def release_summary(self, key: SessionKey, owner: Owner) -> None:
        await self._write(key, lambda db: summaries.release_claim(db, key, owner))

    async def undo_summary(self, key: SessionKey) -> Summary | None:
        return await self._write(key, lambda db: summaries.delete_newest(db, key, self._clock()))

    async def remember(self, key: SessionKey, scope: str, chain: Mapping[int, str]) -> None:
        hashes = dict(chain)
        await self._write(key, lambda db: conversation_openings.insert_openings(db, key, scope, hashes))

    async def forget(self, key: SessionKey) -> None:
        if await self._read(key, lambda db: conversation_openings.has_openings(db, key)):
            await self._write(key, lambda db: conversation_openings.delete_openings(db, key))

    async def match(self, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
        hashes = tuple(chain)
        return await self._database.read(
            lambda db: conversation_openings.find_match(db, namespace, scope, hashes), namespace
        )

    # ------------------------------------------------------------------------------------------- snapshots

    async def whole(self, key: SessionKey) -> SessionSnapshot | None:
        return await self._read(key, lambda db: session_copy.read_whole(db, key))

    async def restore(self, whole: SessionSnapshot, blobs: Mapping[str, bytes], *, replace: bool = False) -> Session:
        data_by_hash = dict(blobs)
        write = session_copy.replace_whole if replace else session_copy.write_whole
        return await self._growing(whole.session.key, lambda db: write(db, whole, data_by_hash, self._clock()))

    async def clear_outputs(self, key: SessionKey, turns: Collection[str], text: str) -> int:
        chosen = frozenset(turns)
        return await self._write(key, lambda db: session_copy.clear_outputs(db, key, chosen, text, self._clock()))

    # ------------------------------------------------------------------------------------------- search

    async def search(self, namespace: str, query: SessionQuery) -> list[SearchHit]:
        check_id(namespace, "namespace")
        return await self._database.read(lambda db: search.search(db, namespace, query), namespace)

    # ------------------------------------------------------------------------------------------- bindings

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        """Bind the notebook ``path`` below ``root`` to a session; it replaces an earlier binding. Raises
        SessionNotFound."""
        key = SessionKey(namespace, session)
        where = serialization.path(root, "contents root"), serialization.path(path)
        await self._database.write(lambda db: bindings.bind(db, key, *where), namespace)

    async def unbind(self, namespace: str, root: str, path: str) -> bool:
        """Remove the binding of a notebook, and return whether there was one."""
        return await self._database.write(lambda db: bindings.unbind(db, namespace, root, path), namespace)

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        """Return the id of the session that a notebook is bound to, or None."""
        return await self._database.read(lambda db: bindings.select_bound_session(db, namespace, root, path), namespace)

    async def move(self, root: str, old: str, new: str) -> int:
        serialization.path(old), serialization.path(new)
        return await self._database.write(lambda db: bindings.move_bindings(db, root, old, new))

    async def paths(self, root: str, session: SessionKey) -> list[str]:
        """Return the notebooks below ``root`` that are bound to a session."""
        return await self._read(session, lambda db: bindings.select_paths(db, root, session))

    async def aclose(self) -> None:
        """Wait for the calls that have started and close the file. Idempotent. Afterwards every method raises
        StoreError."""
        await self._database.aclose()

    # This method is the last one, because in annotations after it the name ``list`` would mean the method.
    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        check_id(namespace, "namespace")
        serialization.validate_limit(limit)
        return await self._database.read(lambda db: sessions.select_sessions(db, namespace, limit), namespace)


# Decides when a turn that another process opened may be closed. The only side effect is the look-up of a process id.


def is_stale(owner: Owner, heartbeat: float, now: float) -> bool:
    """Return whether the lease of a turn has expired: its last ``heartbeat`` is LEASE_S seconds or more before ``now``,
    or its owner is provably dead."""
    return now - heartbeat >= LEASE_S or owner.is_provably_dead(heartbeat)


def check_closing(state: TurnState, reason: str) -> None:
    if state == "open" or state not in get_args(TurnState):
        raise InvalidRequest(f"A turn cannot be closed as {state!r}.")
    serialization.text(reason, "reason")
