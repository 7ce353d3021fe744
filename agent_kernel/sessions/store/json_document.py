"""A session as one readable JSON document: its rows by table, JSON columns as JSON; and the name of its file.

A document says which version of the tables it was written with, and is read into tables of that version, so that a
newer program's migrations change its data as they change a database's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import serialization

FORMAT = "agent-kernel session"
_JSON = frozenset({"body", "usage", "record", "pending", "owner", "tags", "metadata", "context", "imported", "row"})
_DERIVED = frozenset({"folded", "bytes"})
"""Columns that follow from the others: what search took over, and what the quota counts."""
_ELSEWHERE = frozenset({"bindings", "search_places"})
"""Tables that are not in a session's document: bindings have their own, search is made anew."""
_READABLE = 40


def file_name(key: SessionKey) -> str:
    """At most 77 ASCII characters that no disk reads as a path or as another name, upper and lower case taken as one.
    What is readable of the id is for people; the hash tells sessions apart."""
    readable = re.sub(r"[^a-z0-9]+", "-", key.id.lower()).strip("-")[:_READABLE]
    namespace = key.namespace.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(b"%d:" % len(namespace) + namespace + key.id.encode("utf-8", "surrogatepass"))
    return f"{readable}{'-' if readable else ''}{digest.hexdigest()[:31]}.json"


def tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """The tables of which a document has rows, with those of their columns; ``sessions`` comes first. Left out are
    columns that say whose row it is, that are derived, and that number the rows of all sessions."""
    names = [name for (name,) in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY rowid")]
    found: dict[str, list[str]] = {}
    for table in names:
        columns = db.execute(f'PRAGMA table_info("{table}")').fetchall()
        keys = {name for _, name, _, _, _, part in columns if part}
        if table in _ELSEWHERE or (
            table != "sessions" and not {"namespace", "session"} <= {name for _, name, *_ in columns}
        ):
            continue
        hidden = {*_owner(table), *_DERIVED, *(keys if keys == {"id"} else ())}
        found[table] = [name for _, name, *_ in columns if name not in hidden]
    return found


def read(db: sqlite3.Connection, key: SessionKey, version: int, columns: Mapping[str, list[str]]) -> bytes | None:
    """The document of a session, None if there is none; ``columns`` are ``tables`` of the database. The same rows give
    the same bytes."""
    body: dict[str, Any] = {"format": FORMAT, "version": version, "namespace": key.namespace, "id": key.id}
    for table, names in columns.items():
        rows = _rows(db, table, names, key)
        if rows:
            body[table] = rows[0] if table == "sessions" else rows
    return encoded(body) if "sessions" in body else None


def write(db: sqlite3.Connection, body: Mapping[str, Any]) -> None:
    """Raises what a document that is not as ``read`` wrote it brings about: sqlite3.Error, KeyError, TypeError,
    ValueError, InvalidRequest."""
    key = SessionKey(body["namespace"], body["id"])
    for medium in (*body.get("media", ()), *(file for file in body.get("files", ()) if file["hash"])):
        place = (key.namespace, medium["hash"], medium["mime"], medium["size"])
        db.execute(
            "INSERT INTO blobs (namespace, hash, mime, size, data) VALUES (?, ?, ?, ?, x'') ON CONFLICT DO NOTHING",
            place,
        )
    for table, columns in tables(db).items():
        rows = body.get(table, [])
        for row in [rows] if table == "sessions" else rows:
            names = [name for name in columns if name in row]
            values = (key.namespace, key.id, *(_value(name, row[name]) for name in names))
            wanted = ", ".join([*_owner(table), *names])
            db.execute(f"INSERT INTO {table} ({wanted}) VALUES ({', '.join('?' * len(values))})", values)


def decoded(data: bytes) -> Mapping[str, Any] | None:
    """None for JSON that is no document of ours. Raises ValueError for what is not JSON."""
    try:
        body = json.loads(data)
    except RecursionError as error:
        raise ValueError("too many levels") from error
    return body if isinstance(body, dict) and body.get("format") == FORMAT else None


def encoded(body: Mapping[str, Any]) -> bytes:
    """Indented; escaped only where UTF-8 can not hold it."""
    try:
        return (json.dumps(body, ensure_ascii=False, indent=1) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(body, indent=1) + "\n").encode()


def _rows(db: sqlite3.Connection, table: str, names: list[str], key: SessionKey) -> list[dict[str, Any]]:
    where = " AND ".join(f"t.{name} = ?" for name in _owner(table))
    wanted = ", ".join(f"t.{name}" for name in names)
    source, order = f"{table} AS t", _order(names)
    if table == "media":
        source += " JOIN blobs AS b ON b.namespace = t.namespace AND b.hash = t.hash"
        wanted, names = f"{wanted}, b.mime, b.size", [*names, "mime", "size"]
    rows = db.execute(f"SELECT {wanted} FROM {source} WHERE {where} ORDER BY {order}", (key.namespace, key.id))
    return [{name: _shown(name, value) for name, value in zip(names, row, strict=True)} for row in rows]


def _order(names: list[str]) -> str:
    """That in which things happened."""
    return next((f"t.{name}" for name in ("seq", "ordinal", "created", "id", "last", "time") if name in names), "1")


def _owner(table: str) -> tuple[str, str]:
    return ("namespace", "id") if table == "sessions" else ("namespace", "session")


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if name not in _JSON or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {"unreadable": value}


def _value(name: str, shown: Any) -> Any:
    if name not in _JSON:
        return base64.b64decode(shown["base64"]) if isinstance(shown, dict) else shown
    if isinstance(shown, dict) and set(shown) == {"unreadable"}:
        return shown["unreadable"]
    return serialization.encode_value(shown)


def checked(body: Mapping[str, Any], newest: int) -> int:
    """The version of a document. Raises InvalidRequest for one that this program does not know."""
    version = body.get("version")
    if type(version) is not int or version < 1:
        raise InvalidRequest("it has no version")
    if version > newest:
        raise InvalidRequest(f"it was written by a newer agent-kernel (format {version}, this one knows {newest})")
    return version
