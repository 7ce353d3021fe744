"""Stores the API tokens of servers that share a database: each token is valid on all of these servers, and revoking it
takes effect on all of them.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from agent_kernel.core.api_tokens import DAY_S, MAX_DAYS, ApiTokenStore
from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.log.message_bus import MessageBus, SharedValue, change_value
from agent_kernel.sessions.store.store_url import open_bus

INDEX = "tokens"
"""The name of the value that lists the ids of all tokens. Each token is a value of its own."""
KEEP_S = 2 * MAX_DAYS * DAY_S
"""Seconds for which a token is stored. This is longer than any token is valid, so that a list also shows tokens that
have expired."""
NAMESPACE = ""


def open_token_store(directory: Path, store: str) -> ApiTokenStore:
    """Return the tokens of a server with the session store ``store``. If servers share this store, the tokens are in
    its database, to which the result connects at its first use; otherwise they are files in ``directory``. Raises
    InvalidRequest for a URL that cannot be read."""
    bus = open_bus(store)
    return ApiTokenStore(directory, None if bus is None else SharedTokens(bus))


class SharedTokens:
    """The documents that describe API tokens, stored as values of ``bus``, which no other object may use. Its methods
    may be called from any thread.
    """

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._lock = threading.Lock()

    def read(self, id: str) -> tuple[bytes, float] | None:
        with self._lock:
            value = self._bus.get_value(NAMESPACE, _name(id))
        return None if value is None else _decode(value)

    def list_ids(self) -> Iterator[str]:
        with self._lock:
            index = self._bus.get_value(NAMESPACE, INDEX)
        yield from json.loads(index.body) if index else ()

    def write(self, id: str, body: bytes) -> None:
        """Store the document of a new token. The token's id is added to the list first, so that every valid token is
        listed."""
        with self._lock:
            self._change_index(add=id)
            if not self._bus.swap_value(NAMESPACE, _name(id), "", _encode(body, 0.0), KEEP_S):
                raise StoreError("The token could not be stored: its id exists.", hint="Try again.")

    def note_use(self, id: str, now: float) -> None:
        with self._lock:
            value = self._bus.get_value(NAMESPACE, _name(id))
            if value is not None:
                # A failed swap is ignored: another server has then recorded a use too, or revoked the token.
                self._bus.swap_value(NAMESPACE, _name(id), value.version, _encode(_decode(value)[0], now), KEEP_S)

    def delete(self, id: str) -> bool:
        existed = False

        def take(content: bytes | None) -> None:
            nonlocal existed
            existed = content is not None

        with self._lock:
            change_value(self._bus, NAMESPACE, _name(id), take, KEEP_S)
            if existed:
                self._change_index(remove=id)
        return existed

    def close(self) -> None:
        with self._lock:
            self._bus.close()

    def _change_index(self, *, add: str = "", remove: str = "") -> None:
        def change(content: bytes | None) -> bytes:
            ids = [id for id in (json.loads(content) if content else []) if id != remove]
            return json.dumps(ids + ([add] if add else [])).encode()

        change_value(self._bus, NAMESPACE, INDEX, change, KEEP_S)


def _name(id: str) -> str:
    return f"token/{id}"


def _encode(body: bytes, used: float) -> SharedValue:
    return SharedValue(secrets.token_hex(8), json.dumps([base64.b64encode(body).decode(), used]).encode())


def _decode(value: SharedValue) -> tuple[bytes, float]:
    body, used = json.loads(value.body)
    return base64.b64decode(body), float(used)
