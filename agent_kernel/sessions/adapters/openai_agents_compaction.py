"""Serves the automatic compaction of OpenAI's Agents SDK: returns the newest items of a session, and replaces the last
of them with a shorter version.

The SDK reads the newest items of a session regardless of its read limit, lets the API write a shorter version of the
last ones, and replaces these items with that version. Here the shorter version is stored on a new branch, in one
transaction, so that no reader sees a history that has neither version. The branch with the replaced items stays
available to people, search and export.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, Owner, SessionKey, Turn, new_id
from agent_kernel.sessions.export import responses_items
from agent_kernel.sessions.export.responses_items import Body

Forms: TypeAlias = Sequence[tuple[Item, list[Body]]]
"""Stored items, each with its form in the Responses API."""
Replace: TypeAlias = Callable[[int, list[Any]], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class CompactionSnapshot:
    """The part of a session that the SDK's compaction reads. ``items`` are its newest items, and ``complete`` is true
    if they are the whole history. ``replace_suffix`` replaces the items from an index on; it returns False and writes
    nothing if they are no longer the newest items."""

    items: list[Body]
    complete: bool
    replace_suffix: Replace


class Suffix:
    """The newest items of a session, which compaction replaces.

    ``start`` is the index of the first of these items in the flattened Responses API bodies of ``forms``.
    ``is_expired`` is passed by the SDK's EncryptedSession, and returns True for an item that can no longer be
    decrypted. If ``is_expired`` is given, a replacement also removes the expired items at the beginning of the history,
    and deletes the branch that holds the replaced items. If it is None, that branch stays in the session.
    """

    def __init__(
        self, store: SessionStore, key: SessionKey, forms: Forms, start: int, is_expired: Callable[[Body], bool] | None
    ) -> None:
        places = [(at, offset) for at, (_, bodies) in enumerate(forms) for offset in range(len(bodies))]
        at, offset = places[start]
        self._store = store
        self._key = key
        self._is_expired = is_expired
        self._tail = [item for item, _ in forms[at:]]
        # The first item may correspond to several items of the Responses API, a message and its calls. Those of them
        # that are not replaced are stored again.
        self._rest = [responses_items.message_of(body) for body in forms[at][1][:offset]]
        self._splits_pair = not offset and self._tail[0].message.role == "tool"

    async def replace(self, messages: Sequence[Message], record: dict[str, Any]) -> bool:
        """Replace the suffix with ``messages``, in a turn with this ``record``, and return True. Returns False, without
        a change, if the suffix is no longer the end of the branch or another turn of the session runs."""
        before = await self._read_before()
        if before is None or self._splits_pair:
            return False
        expired = self._count_expired(before)
        fresh = [*(item.message for item in before[expired:] if expired), *self._rest, *messages]
        if not fresh:
            return await self._store.rewind(self._key, [*before, *self._tail] if expired else self._tail)
        with suppress(SessionBusy):
            return await self._branch_off(fresh, record, expired)
        return False

    async def _read_before(self) -> list[Item] | None:
        """Return the items of the current branch before these newest items, or None if newer items have been added."""
        items = await self._store.latest(self._key, failed=False)
        count = len(items) - len(self._tail)
        return items[:count] if count >= 0 and items[count:] == self._tail else None

    def _count_expired(self, before: Sequence[Item]) -> int:
        """Return how many items at the beginning of the history are older than the retention period."""
        if self._is_expired is None:
            return 0
        for count, bodies in enumerate(responses_items.items_of(before, {})):
            if not bodies or not all(self._is_expired(body) for body in bodies):
                return count
        return len(before)

    async def _branch_off(self, fresh: Sequence[Message], record: dict[str, Any], expired: int) -> bool:
        """Write the messages ``fresh`` on a new branch in place of the suffix, and return True. Returns False if the
        history has changed since it was read: the suffix is no longer its end, or the history no longer begins with
        ``expired`` expired items. The open turn prevents other writers from changing the session after this check."""
        owner = Owner.here()
        turn = await self._store.open_turn(Turn(new_id("turn"), self._key, record=record), owner)
        replaced = False
        try:
            before, session = await self._read_before(), await self._store.info(self._key)
            if before is None or session is None or self._count_expired(before) != expired:
                return False
            behind = before[-1].seq if before and not expired else 0
            await self._store.append_at(turn, owner, fresh, session.head, behind=behind)
            replaced = True
        finally:
            state: TurnState = "committed" if replaced else "cancelled"
            await self._store.close_turn(turn, owner, state, "" if replaced else "The history has changed.")
        if self._is_expired is not None:
            await self._store.drop_branch(self._key, session.branch)
        return True
