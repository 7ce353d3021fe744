"""Creates, checks and revokes long-lived API tokens, which programs use in place of a login. A user creates and revokes
them at the command line. Each token has scopes, an expiry date, and a namespace.

Each token is one small document, named by the public part of the token, with a hash of the secret part. Revoking a
token deletes its document, which takes effect on every server at once. On one machine the documents are files, so
revoking works on a full disk; the day of last use is the file's modification time, so that the content of the file
never changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from agent_kernel.core.atomic_file import store_errors, write_synced
from agent_kernel.core.errors import InvalidRequest, NotFound, StoreError, TokenInvalid
from agent_kernel.core.session import check_id

SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "turns": "send requests to models and the agent, in separate conversations, and answer their questions",
        "sessions": "read and change all conversations of the user",
        "files": "upload, read and delete files",
        "skills": "install, read and remove skills",
        "metrics": "read the metrics of the server",
        "all": "everything that the user may do with the agent, including notebooks and kernels",
    }
)
DAYS = 30
MAX_DAYS = 366
TOKEN_NAMESPACE_MARK = "/tokens/"
"""Stands between the user and the name of the token in the namespace of a token that has a namespace of its own. No
user name contains this text."""
DAY_S = 86_400.0
MAX_BYTES = 1 << 16
_NEW = "Create one with: agent-kernel token new"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{12}")
NO_ID = "none"
"""The id to look up in place of a text that cannot be the id of a token. No token has this id."""
_BEGINS = re.compile(r"ak_[0-9a-f]{12}_")
_TEXT = re.compile(r"ak_([0-9a-f]{12})_([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ApiToken:
    """The stored data of a token, without its secret. ``user`` is the namespace for which it was created; empty means
    the namespace of the server.

    Times are seconds since the epoch. ``used`` is the time of last use, accurate to the day; 0 means that the token was
    never used.
    """

    id: str
    name: str
    scopes: frozenset[str]
    user: str
    created: float
    expires: float
    used: float = 0.0

    @property
    def is_expired(self) -> bool:
        return time.time() >= self.expires

    @property
    def has_all_scopes(self) -> bool:
        return "all" in self.scopes

    def has_any_scope(self, scopes: Collection[str]) -> bool:
        """Return whether the token has at least one of these scopes. A token with the scope ``all`` has every scope."""
        return self.has_all_scopes or not self.scopes.isdisjoint(scopes)

    def namespace(self, server: str) -> str:
        """Return the namespace of the sessions that this token can use. ``server`` is the namespace of the server.

        A token with the scope ``sessions`` uses the namespace of its user. Any other token has a namespace of its own,
        so that its sessions are separate from those of the user. Tokens of the same user with the same name share that
        namespace, so that a new token can replace an old one.
        """
        user = self.user or server
        return user if self.has_any_scope(("sessions",)) else f"{user}{TOKEN_NAMESPACE_MARK}{self.name}"


def looks_like_token(text: str) -> bool:
    """Return whether the text begins as a token of agent-kernel does. The token may still be invalid."""
    return bool(_BEGINS.match(text))


class TokenRecords(Protocol):
    """Stores one document for each token, under the id of the token. All methods block and raise StoreError if the
    storage fails. ``read`` returns None for a document that is missing or unreadable."""

    def read(self, id: str) -> tuple[bytes, float] | None:
        """Return the document and the time of last use (0: never used)."""

    def list_ids(self) -> Iterable[str]: ...

    def write(self, id: str, body: bytes) -> None:
        """Store a new document."""

    def note_use(self, id: str, now: float) -> None:
        """Record the time of last use, if the document still exists."""

    def delete(self, id: str) -> bool:
        """Delete the document. Return False if there is none."""

    def close(self) -> None: ...


class ApiTokenStore:
    """Stores API tokens, each in a file of ``directory``, which is created with the first token.

    If several servers share a database, ``shared`` is the table of tokens in it. New tokens are then stored there and
    are valid on all these servers. Tokens in the files stay valid on this server only."""

    def __init__(self, directory: Path, shared: TokenRecords | None = None) -> None:
        files = TokenFiles(directory)
        self._records: Sequence[TokenRecords] = (files,) if shared is None else (files, shared)

    def new(self, scopes: Collection[str], *, days: int = DAYS, name: str = "", user: str = "") -> tuple[ApiToken, str]:
        """Create a token that is valid for ``days``, and return it with its text. The text is stored nowhere, so it
        cannot be shown again. Raises InvalidRequest, StoreFull, StoreError."""
        id, secret = secrets.token_hex(6), secrets.token_hex(32)
        now = time.time()
        token = ApiToken(id, name or id, frozenset(scopes), user, now, now + days * DAY_S)
        _check(token, days)
        facts = {"name": token.name, "scopes": sorted(scopes), "user": user, "created": now, "expires": token.expires}
        body = json.dumps({"version": 1, **facts, "sha256": _hash(secret)}, indent=1)
        self._records[-1].write(id, body.encode())
        return token, f"ak_{id}_{secret}"

    def list_tokens(self) -> list[ApiToken]:
        """Return the tokens, oldest first; unreadable ones are skipped. Raises StoreError."""
        tokens = [self._read(id)[0] for records in self._records for id in records.list_ids()]
        return sorted((token for token in tokens if token), key=lambda token: (token.created, token.id))

    def revoke(self, id: str) -> ApiToken | None:
        """Delete a token. Returns the token, or None if it was unreadable. Raises NotFound, StoreError."""
        token_id = id if _ID.fullmatch(id) else NO_ID
        token = self._read(token_id)[0]
        if not any(records.delete(token_id) for records in self._records):
            raise NotFound(f"There is no token {id[:80]!r}.", hint="List them with: agent-kernel token list")
        return token

    def holder(self, text: str) -> ApiToken:
        """Return the token whose text this is, and record that it was used today. Blocking: reads one small file, or
        one row of the shared database. Raises TokenInvalid if the token is incomplete, unknown, revoked or expired, and
        StoreError while the shared database cannot be used."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise TokenInvalid("This is not a complete token.", hint=_NEW)
        token, digest = self._read(parts[1])
        if not hmac.compare_digest(_hash(parts[2]), digest) or token is None:
            raise TokenInvalid("This token is unknown or was revoked.", hint=_NEW)
        if token.is_expired:
            ended = time.strftime("%Y-%m-%d", time.gmtime(token.expires))
            raise TokenInvalid(f"This token expired on {ended}.", hint=_NEW)
        now = time.time()
        if now // DAY_S != token.used // DAY_S:
            for records in self._records:
                with contextlib.suppress(StoreError):  # the token is valid even if this cannot be written
                    records.note_use(token.id, now)
        return token

    def find(self, id: str) -> ApiToken:
        """Return the valid token with this id, for a caller who showed its text earlier. Blocking. Raises TokenInvalid
        if the token was revoked or has expired, and StoreError."""
        token = self._read(id)[0] if _ID.fullmatch(id) else None
        if token is None or token.is_expired:
            raise TokenInvalid("The token of this login was revoked or has expired.", hint=_NEW)
        return token

    def is_valid(self, token: ApiToken) -> bool:
        """Return whether a token that ``holder`` returned is still valid. Blocking. Raises StoreError."""
        return not token.is_expired and any(records.read(token.id) is not None for records in self._records)

    def close(self) -> None:
        for records in self._records:
            records.close()

    def _read(self, id: str) -> tuple[ApiToken | None, str]:
        """Read a token and the hash of its secret part. Returns (None, "") if it is missing or unreadable."""
        for records in self._records:
            if (document := records.read(id)) is not None:
                return _decode(id, *document)
        return None, ""


class TokenFiles:
    """Stores the document of each token in a file of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, id: str) -> tuple[bytes, float] | None:
        try:
            with self._path(id).open("rb") as file:
                return file.read(MAX_BYTES), os.fstat(file.fileno()).st_mtime
        except OSError:
            return None

    def list_ids(self) -> Iterator[str]:
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be read: {error.strerror or error}.") from error
        yield from (name[:-5] for name in names if name.endswith(".json") and _ID.fullmatch(name[:-5]))

    def write(self, id: str, body: bytes) -> None:
        with store_errors("The token"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = write_synced(self._directory / f"{id}.new", body)
            os.utime(fresh, (0, 0))  # the time 0 means that the token was never used
            fresh.replace(self._path(id))

    def note_use(self, id: str, now: float) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._path(id), (now, now))

    def delete(self, id: str) -> bool:
        try:
            self._path(id).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"The token could not be revoked: {error.strerror or error}.") from error
        return True

    def close(self) -> None:
        """Do nothing, because no file stays open."""

    def _path(self, id: str) -> Path:
        return self._directory / f"{id}.json"


def _decode(id: str, body: bytes, used: float) -> tuple[ApiToken | None, str]:
    """Return the token in a document and the hash of its secret part; (None, "") for a document that is not a token."""
    try:
        facts = json.loads(body)
        scopes = frozenset(map(str, facts["scopes"])) & SCOPES.keys()
        holder = str(facts["name"]), scopes, str(facts["user"])
        return ApiToken(id, *holder, float(facts["created"]), float(facts["expires"]), used), str(facts["sha256"])
    except (ValueError, KeyError, TypeError):
        return None, ""


def _check(token: ApiToken, days: int) -> None:
    if not token.scopes or not token.scopes <= SCOPES.keys():
        raise InvalidRequest(f"A token needs at least one of the scopes {', '.join(SCOPES)}.")
    if not 1 <= days <= MAX_DAYS:
        raise InvalidRequest(f"A token must be valid for 1 to {MAX_DAYS} days.")
    if not _NAME.fullmatch(token.name):
        raise InvalidRequest("The name of a token must have 1 to 64 letters, digits, dots, hyphens or underscores.")
    if token.user:
        check_id(token.user, "namespace")
        if TOKEN_NAMESPACE_MARK in token.user:
            raise InvalidRequest(f"The name of a user must not contain {TOKEN_NAMESPACE_MARK}.")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
