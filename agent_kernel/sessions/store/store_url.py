"""Opens the session store that a URL names: ``sqlite:PATH``, ``files:PATH``, ``memory:``, or a database that several
servers share. The URL of a shared database may end with ``#key=`` and the location of the encryption key (see
``encryption_key.py``)."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.sessions.log.log_store import LogStore
from agent_kernel.sessions.log.message_bus import MessageBus
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import NONE, SqliteStore
from agent_kernel.sessions.tables.quota import Quota

SCHEMES: Mapping[str, Callable[[str, bool, Quota], PersistentStore]] = MappingProxyType(
    {
        "sqlite": lambda place, durable, quota: SqliteStore(_path("sqlite", place), durable=durable, quota=quota),
        "files": lambda place, durable, quota: FilesStore(_path("files", place), quota=quota),
        "memory": lambda place, durable, quota: MemoryStore(quota=_nothing_after("memory", place, quota)),
    }
)
"""The stores of one machine by the scheme of their URL; each is called with the rest of the URL, ``durable`` and the
quota."""
LOGS: Mapping[str, str] = MappingProxyType(
    {
        "postgresql": "postgresql:PostgresLog",
        "redis": "redis:RedisLog",
        "rediss": "redis:RedisLog",
        "mongodb": "mongodb:open_mongodb",
        "mongodb+srv": "mongodb:open_mongodb",
        "dynamodb": "dynamodb:open_dynamodb",
        "supabase": "supabase:SupabaseLog",
    }
)
"""The logs of shared databases by the scheme of their URL: a module of ``sessions.log``, and the name in it that is
called with the URL. A module is imported when a URL names it."""
WITH_BUS = frozenset({"postgresql", "redis", "rediss"})
"""The schemes of the databases through which servers also send each other messages. Servers that share another database
share sessions only."""
FORMS = (
    "sqlite:PATH (a file), files:PATH (a directory of JSON documents), postgresql://USER@HOST/DATABASE,"
    " redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss: (the same with TLS), mongodb://USER:PASSWORD@HOST/DATABASE,"
    " mongodb+srv://HOST/DATABASE, dynamodb://REGION/TABLE, supabase://SECRET_KEY@PROJECT.supabase.co, or memory:"
)
KEY_MARK = "#key="
"""In a store's URL, separates the URL from the place of the key: a path, ``env:VARIABLE``, or
``keyring:SERVICE/USER``."""
KEY_BYTES = 32
HINT = "Make a key with: openssl rand -base64 32"


def open_store(url: str, *, durable: bool = False, quota: Quota = NONE) -> PersistentStore:
    """Return the store; it creates its file or directory at its first use. ``durable`` makes every write of a SQLite
    file wait for the disk. Raises InvalidRequest for a URL of another form; the message contains only the scheme, since
    the rest of a database's URL may contain a password."""
    scheme, colon, place = url.partition(":")
    if not colon:
        raise InvalidRequest("The URL of a store begins with a scheme and a colon.", hint=f"Use {FORMS}.")
    if scheme in LOGS:
        return _open_shared(url, quota)
    if scheme not in SCHEMES:
        raise InvalidRequest(f"This version has no store for {scheme[:40]}: URLs.", hint=f"Use {FORMS}.")
    return SCHEMES[scheme](place, durable, quota)


def open_log(url: str) -> LogStore:
    """Return the log in the shared database that ``url`` names; it connects at its first use. Raises InvalidRequest for
    a URL that cannot be read, or if the library of the database is not installed."""
    module, _, name = LOGS[url.partition(":")[0]].partition(":")
    opened: LogStore = getattr(import_module(f"agent_kernel.sessions.log.{module}"), name)(url)
    return opened


def open_bus(url: str) -> MessageBus | None:
    """Return a bus between the servers that share the store ``url``; it connects at its first use. Returns None if
    ``url`` names no shared database (a store of one machine, or a plain name), or if the shared database has no bus.
    Raises InvalidRequest for a URL that cannot be read."""
    return _open_shared_log(url).bus() if url.partition(":")[0] in LOGS else None


def _open_shared(url: str, quota: Quota) -> PersistentStore:
    from agent_kernel.sessions.store.shared_store import SharedStore

    return SharedStore(_open_shared_log(url), quota=quota)


def _open_shared_log(url: str) -> LogStore:
    from agent_kernel.sessions.log.encrypted_log import EncryptedLog

    address, mark, key = url.rpartition(KEY_MARK)
    log = open_log(address if mark else url)
    return EncryptedLog(log, read_key(key)) if mark else log


def _path(scheme: str, place: str) -> Path:
    if not place or place.startswith("//"):
        raise InvalidRequest(
            f"{scheme}: must be followed by a path, not by a host name (//HOST).",
            hint=f"For example {scheme}:chats, relative to the current directory, or {scheme}:/home/ann/chats.",
        )
    if KEY_MARK in place:
        raise InvalidRequest(
            f"A {scheme}: store is not encrypted by agent-kernel.", hint="Encrypt the disk, or use a shared database."
        )
    return Path(place).expanduser()


def _nothing_after(scheme: str, place: str, quota: Quota) -> Quota:
    if place:
        raise InvalidRequest(f"Nothing may follow {scheme}:.", hint=f"Use {FORMS}.")
    return quota


# Reads the key of an encrypted store: 32 bytes as base64, in a file, an environment variable, or the system's
# keyring.


def read_key(place: str, env: Mapping[str, str] = os.environ) -> bytes:
    """Return the key that is stored at ``place`` (see KEY_MARK). Raises InvalidRequest; the message contains no part of
    the key."""
    kind, _, name = place.partition(":")
    if kind == "env":
        text, place_name = env.get(name, ""), f"the environment variable {name[:80]}"
    elif kind == "keyring":
        text, place_name = _from_keyring(name), f"the keyring ({name[:80]})"
    else:
        text, place_name = _from_file(place), place[:200]
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidRequest(f"There is no key of {KEY_BYTES} bytes as base64 in {place_name}.", hint=HINT)
    return key


def _from_file(place: str) -> str:
    try:
        return Path(place).expanduser().read_text(encoding="ascii")
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        raise InvalidRequest(f"The key {place[:200]} cannot be read: {error.strerror}.", hint=HINT) from None


def _from_keyring(name: str) -> str:
    try:
        import keyring  # keyring is an optional library
    except ImportError:
        raise InvalidRequest(
            "A key in the system's keyring needs the Python package keyring.", hint="Install it: pip install keyring."
        ) from None
    service, _, user = name.partition("/")
    try:
        return keyring.get_password(service, user) or ""
    except keyring.errors.KeyringError as error:
        raise InvalidRequest(f"The keyring cannot be read: {type(error).__name__}.") from None
