"""Encrypts the messages between servers before the database gets them. The names of topics remain readable."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_kernel.core.errors import StoreError
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
