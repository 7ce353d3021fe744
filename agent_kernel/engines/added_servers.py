"""Stores the model servers that users added to those of the configuration. The key of a server is in the system's
keyring; if there is no keyring, it is in a file that only the user can read. The list of servers contains no key."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock, Timeout

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import AgentKernelError, Conflict, StoreCorrupt
from agent_kernel.engines.openai_api.api_keys import delete_from_keyring, write_to_keyring
from agent_kernel.engines.openai_api.endpoint import Endpoint

KeyPlace: TypeAlias = Literal["", "keyring", "file"]
SERVICE = "agent-kernel"
MAX_SERVERS = 50
TRIED = "tried-"
"""Prefix of the files that hold a key while its server is tested."""
TRIED_S = 900.0
"""Age in seconds from which a file with the prefix TRIED is deleted. A test of a server takes less time, so the process
that wrote an older file was killed."""
LOCK_S = 10.0
"""Maximum time in seconds that a change waits for a change by another process. A change takes milliseconds, unless the
keyring asks the user to unlock it."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AddedServer:
    """A model server that the user of ``namespace`` added. No other user sees or uses it."""

    name: str
    namespace: str
    endpoint: Endpoint

    @property
    def key_place(self) -> KeyPlace:
        return "keyring" if self.endpoint.api_key_keyring else "file" if self.endpoint.api_key_file else ""


class AddedServers:
    """Stores the servers in ``directory``, which several servers of one user may share. All methods are blocking."""

    def __init__(self, directory: Path) -> None:
        self._list = directory / "model_servers.json"
        self._keys = directory / "model_server_keys"

    def load(self) -> list[AddedServer]:
        """Return the servers. A server whose entry cannot be read is left out and reported in the log."""
        if self._keys.is_dir():
            for leftover in self._keys.glob(f"{TRIED}*"):  # a server that was killed during a test left this key
                with contextlib.suppress(FileNotFoundError):  # another process ended its test, or cleaned up
                    if leftover.stat().st_mtime < time.time() - TRIED_S:
                        leftover.unlink()
        try:
            return list(_parse(self._rows()).values())
        except StoreCorrupt as error:
            log.warning("%s", error.message)
            return []

    def save(self, name: str, namespace: str, endpoint: Endpoint, key: str | None) -> AddedServer:
        """Store a server in place of one with the same name. With ``key`` None the server keeps its key, if the address
        stays the same: a key is never sent to another address than the one it was entered for. Raises Conflict if
        another user has a server of this name, if there are too many servers, or if another process does not finish its
        change, and StoreCorrupt if the list cannot be read.
        """
        with self._changing():
            return self._save(name, namespace, endpoint, key)

    def _save(self, name: str, namespace: str, endpoint: Endpoint, key: str | None) -> AddedServer:
        rows = self._rows()
        former = _parse(rows).get(name)
        if name in rows and (former is None or former.namespace != namespace):
            raise Conflict(f"A model server named {name} exists already. Choose another name.")
        if former is None and len(rows) >= MAX_SERVERS:
            raise Conflict(f"This machine has {MAX_SERVERS} model servers, which is the limit. Remove one first.")
        if key is None and former is not None and former.endpoint.url == endpoint.url:
            old = former.endpoint
            added = replace(endpoint, api_key_keyring=old.api_key_keyring, api_key_file=old.api_key_file)
        else:
            if former is not None:
                self._forget_key(former.endpoint)
            added = self._with_key(name, namespace, endpoint, key or "")
        self._write(rows | {name: _to_row(namespace, added)})
        return AddedServer(name, namespace, added)

    def remove(self, name: str, namespace: str) -> bool:
        """Remove a server and its key. Return False if the user has no server of this name. Raises StoreCorrupt if the
        list cannot be read, and Conflict if another process does not finish its change."""
        with self._changing():
            rows = self._rows()
            server = _parse(rows).get(name)
            if server is None or server.namespace != namespace:
                return False
            del rows[name]
            self._write(rows)
            self._forget_key(server.endpoint)
            return True

    @contextlib.contextmanager
    def trying(self, endpoint: Endpoint, key: str) -> Iterator[Endpoint]:
        """Yield the endpoint with ``key``, which is stored in a temporary file only for the duration of the ``with``
        block.
        """
        if not key:
            yield endpoint
            return
        file = self._write_key(f"{TRIED}{secrets.token_hex(8)}", key)
        try:
            yield replace(endpoint, api_key_file=str(file))
        finally:
            file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of the list, so that no other thread or process changes the list at the same time. The system
        releases the lock of a process that was killed.
        """
        self._list.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(f"{self._list}.lock", timeout=LOCK_S)
        try:
            lock.acquire()
        except Timeout:
            raise Conflict(
                "Another Jupyter server is changing the list of model servers.",
                hint=(
                    "Your change was not made. Try again; the other server may be "
                    "waiting for the keyring to be unlocked."
                ),
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _with_key(self, name: str, namespace: str, endpoint: Endpoint, key: str) -> Endpoint:
        if not key:
            return endpoint
        owner = hashlib.sha256(namespace.encode()).hexdigest()[:12]
        if write_to_keyring(SERVICE, f"{name}.{owner}", key):
            return replace(endpoint, api_key_keyring=f"{SERVICE}/{name}.{owner}")
        return replace(endpoint, api_key_file=str(self._write_key(f"{name}.{owner}", key)))

    def _forget_key(self, endpoint: Endpoint) -> None:
        if endpoint.api_key_keyring:
            delete_from_keyring(*endpoint.api_key_keyring.partition("/")[::2])
        if endpoint.api_key_file:
            Path(endpoint.api_key_file).unlink(missing_ok=True)

    def _write_key(self, name: str, key: str) -> Path:
        self._keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        return replace_file(self._keys / name, key.encode())

    def _rows(self) -> dict[str, Any]:
        """Return all rows of the list, including servers that this version cannot read, so that a change of one server
        keeps the others. Raises StoreCorrupt."""
        try:
            rows = json.loads(self._list.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._corrupt_error(type(error).__name__) from None
        if not isinstance(rows, dict):
            raise self._corrupt_error("the file is not a JSON object")
        return rows

    def _corrupt_error(self, reason: str) -> StoreCorrupt:
        return StoreCorrupt(
            f"The list of model servers {self._list} cannot be read: {reason}",
            hint="Nothing was changed. Repair the file, or remove the file to begin a new list.",
        )

    def _write(self, rows: Mapping[str, Any]) -> None:
        replace_file(self._list, json.dumps(rows, indent=1).encode())


def _parse(rows: Mapping[str, Any]) -> dict[str, AddedServer]:
    """Return the servers by name. A server whose entry cannot be read is left out and reported in the log."""
    servers = {}
    for name, row in rows.items():
        try:
            endpoint = Endpoint.from_json({key: value for key, value in row.items() if key != "namespace"})
            servers[name] = AddedServer(name, str(row["namespace"]), endpoint)
        except (AgentKernelError, AttributeError, KeyError, TypeError) as error:
            log.warning("The model server %s cannot be used, because its entry cannot be read: %s", name, error)
    return servers


def _to_row(namespace: str, endpoint: Endpoint) -> dict[str, Any]:
    facts = {"url": endpoint.url, "model": endpoint.model}
    facts |= {"api_key_keyring": endpoint.api_key_keyring, "api_key_file": endpoint.api_key_file}
    return {"namespace": namespace} | {name: value for name, value in facts.items() if value}
