"""A log whose entries and media are encrypted before the database gets them.

Bodies are encrypted with AES-256-GCM. HKDF-SHA256 (RFC 5869) derives a key for each namespace from the key of the
store. The encryption of an entry includes its namespace, its session and the entry before it. So the reader notices if
entries have been exchanged, repeated or left out in the database; only the removal of the newest entries of a session
is not noticed. The names of media are HMAC-SHA256 of their hashes: equal media have equal names within a namespace
only. Namespaces, ids of sessions, sizes, times and the number of changes remain readable.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.log.log_store import ENCRYPTED, GRACE_S, Append, Entry, LogStore, Stream, Tail
from agent_kernel.sessions.log.message_bus import (
    BusMessage,
    EventCount,
    EventCounter,
    MessageBus,
    Post,
    SharedValue,
    Topic,
)
from agent_kernel.sessions.log.namespace_cipher import NamespaceCipher

_POSITION_BYTES = 8


class EncryptedLog:
    """A LogStore over ``log``, with a ``key`` of 32 bytes. Raises InvalidRequest if the cryptography library is not
    installed.

    Reading raises StoreError for a wrong key, for entries that were changed, and for a log with entries in plain text.
    Every server reads before its first write.
    """

    def __init__(self, log: LogStore, key: bytes) -> None:
        self.name = log.name
        self._log = log
        self._key = key
        self._cipher = NamespaceCipher(log.name, key)
        self._heads: dict[Stream, int] = {}
        self._read_up_to: dict[str, int] = {}

    @property
    def compares(self) -> bool:
        return self._log.compares

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        if not after:
            self._heads.clear()
        namespaces = after if among is None else among
        skipped = {name for name in namespaces if after.get(name, 0) > self._read_up_to.get(name, 0)}
        if skipped:
            # The caller skips entries of these namespaces, so their next entries cannot be compared with earlier ones.
            self._heads = {stream: last for stream, last in self._heads.items() if stream[0] not in skipped}
        tail = self._log.read(after, among)
        return replace(tail, entries=[self._decrypt_entry(entry, after) for entry in tail.entries])

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        positions = self._log.commit(id, [self._encrypt_append(append) for append in appends], after)
        for stream, position in sorted(positions.items(), key=lambda item: item[1]):
            if position == self._read_up_to.get(stream[0], 0) + 1:
                # The writer knows the entry that it has just appended, so this entry counts as read.
                self._heads[stream] = self._read_up_to[stream[0]] = position
        return positions

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        name = self._cipher.hide_name(namespace, digest)
        self._log.put_blob(namespace, name, self._cipher.encrypt(namespace, data, ("blob", name)))

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        name = self._cipher.hide_name(namespace, digest)
        data = self._log.get_blob(namespace, name)
        return None if data is None else self._cipher.decrypt(namespace, data, ("blob", name))

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._log.touch_blobs(namespace, [self._cipher.hide_name(namespace, digest) for digest in digests])

    def drop_blobs(self, referenced: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        return self._log.drop_blobs(
            {(namespace, self._cipher.hide_name(namespace, digest)) for namespace, digest in referenced}, grace
        )

    def bus(self) -> MessageBus | None:
        bus = self._log.bus()
        return None if bus is None else EncryptedBus(bus, self._key)

    def close(self) -> None:
        self._log.close()

    # ------------------------------------------------------------------------------------------- entries

    def _encrypt_append(self, append: Append) -> Append:
        if append.body is None:
            return append
        before = 0 if append.replaces else append.expect
        context = ("entry", append.session, append.replaces, before)
        body = self._cipher.encrypt(append.namespace, append.body, context, before.to_bytes(_POSITION_BYTES, "big"))
        return replace(append, body=body)

    def _decrypt_entry(self, entry: Entry, after: Mapping[str, int]) -> Entry:
        """Decrypt an entry, and check that it follows the entry before it in its stream, if that one was read."""
        stream = (entry.namespace, entry.session)
        before = int.from_bytes(entry.body[len(ENCRYPTED) :][:_POSITION_BYTES], "big")
        context = ("entry", entry.session, entry.replaces, before)
        body = self._cipher.decrypt(entry.namespace, entry.body, context, _POSITION_BYTES)
        known = self._heads.get(stream, None if after.get(entry.namespace) else 0)
        if known is not None and known < entry.position and not entry.replaces and known != before:
            raise self._cipher.failure()
        self._heads[stream] = max(known or 0, entry.position)
        self._read_up_to[entry.namespace] = max(entry.position, self._read_up_to.get(entry.namespace, 0))
        return replace(entry, body=body)


# Encrypts the messages between servers before the database gets them. The names of topics remain readable.


log = logging.getLogger(__name__)


class EncryptedBus:
    """A MessageBus over ``bus``, with a ``key`` of 32 bytes. A message is bound to its topic. If a message cannot be
    decrypted, its receiver gets it with an empty body and without an error, so that a forged message in the
    database cannot stop the receivers."""

    def __init__(self, bus: MessageBus, key: bytes) -> None:
        self.name = bus.name
        self._bus = bus
        self._cipher = NamespaceCipher(bus.name, key)

    def send(self, posts: Sequence[Post]) -> None:
        self._bus.send(
            [
                replace(post, body=self._cipher.encrypt(post.topic[0], post.body, ("message", post.topic[1])))
                for post in posts
            ]
        )

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        return [replace(message, body=self._decrypt(message)) for message in self._bus.receive(after, wait_s)]

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        hidden = self._cipher.hide_name(namespace, name)
        value = self._bus.get_value(namespace, hidden)
        if value is None:
            return None
        return replace(value, body=self._cipher.decrypt(namespace, value.body, ("value", hidden, value.version)))

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        hidden = self._cipher.hide_name(namespace, name)
        if value is not None:
            sealed = self._cipher.encrypt(namespace, value.body, ("value", hidden, value.version))
            value = replace(value, body=sealed)
        return self._bus.swap_value(namespace, hidden, expect, value, keep_s)

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        return self._bus.count_event(event, self._hide_names(counters), window_s)

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        events, counters = [event for event, _ in counted], self._hide_names([counter for _, counter in counted])
        self._bus.renew_events([*zip(events, counters, strict=True)], window_s)

    def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        self._bus.uncount_event(event, self._hide_names(counters))

    def close(self) -> None:
        self._bus.close()

    def _hide_names(self, counters: Sequence[EventCounter]) -> list[EventCounter]:
        return [replace(counter, name=self._cipher.hide_name(counter.namespace, counter.name)) for counter in counters]

    def _decrypt(self, message: BusMessage) -> bytes:
        namespace, name = message.topic
        try:
            return self._cipher.decrypt(namespace, message.body, ("message", name))
        except StoreError as error:
            log.warning("a message of another server is ignored: %s", error)
            return b""
