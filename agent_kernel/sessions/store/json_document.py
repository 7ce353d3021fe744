"""Converts a session to one readable JSON document, which contains the session's rows by table, and back.

A document contains the version of the tables from which it was written. It is read into tables of that version, so that
the migrations of a newer program are applied to its data as to a database.
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
from agent_kernel.sessions.tables import blobs

FORMAT = "agent-kernel session"
"""Value of ``format`` in every document."""
_JSON = frozenset({"body", "usage", "record", "pending", "owner", "tags", "metadata", "context", "imported", "row"})
"""Columns whose text is JSON; documents contain the parsed value."""
_DERIVED = frozenset({"folded", "bytes"})
"""Columns that documents leave out, because they are computed again: the progress of the search index and the bytes
that count towards the quota."""
_EXCLUDED = frozenset({"bindings", "search_places"})
"""Tables that are not in a session's document: bindings have a document of their own, and the search index is rebuilt.
"""
_READABLE = 40


def file_name(key: SessionKey) -> str:
    """Return the name of a session's document: at most 77 ASCII characters, valid on every file system.

    The name begins with the readable part of the id, for people. The hash makes it unique, even on file systems that
    ignore case.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", key.id.lower()).strip("-")[:_READABLE]
    namespace = key.namespace.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(b"%d:" % len(namespace) + namespace + key.id.encode("utf-8", "surrogatepass"))
    return f"{readable}{'-' if readable else ''}{digest.hexdigest()[:31]}.json"


def document_tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the tables whose rows a document contains, each with the columns to store; ``sessions`` comes first.

    Columns are left out if they identify the session, if they are computed from others, or if they number the rows of
    all sessions.
    """
    names = [name for (name,) in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY rowid")]
    columns_of: dict[str, list[str]] = {}
    for table in names:
        columns = db.execute(f'PRAGMA table_info("{table}")').fetchall()
        keys = {name for _, name, _, _, _, part in columns if part}
        if table in _EXCLUDED or (
            table != "sessions" and not {"namespace", "session"} <= {name for _, name, *_ in columns}
        ):
            continue
        # A primary key that consists only of "id" numbers the rows of all sessions, so the ids of two documents would
        # collide.
        hidden = {*_key_columns(table), *_DERIVED, *(keys if keys == {"id"} else ())}
        columns_of[table] = [name for _, name, *_ in columns if name not in hidden]
    return columns_of


def read_document(
    db: sqlite3.Connection, key: SessionKey, version: int, columns: Mapping[str, list[str]]
) -> bytes | None:
    """Return the document of a session, or None if there is no such session. ``version`` is the version of the tables,
    and ``columns`` the result of ``document_tables``. The same rows always give the same bytes."""
    body: dict[str, Any] = {"format": FORMAT, "version": version, "namespace": key.namespace, "id": key.id}
    for table, names in columns.items():
        rows = _rows(db, table, names, key)
        if rows:
            body[table] = rows[0] if table == "sessions" else rows
    return to_bytes(body) if "sessions" in body else None


def insert_document(db: sqlite3.Connection, body: Mapping[str, Any]) -> None:
    """Insert the rows of a document. Raises sqlite3.Error, KeyError, TypeError, ValueError or InvalidRequest for a
    document that ``read_document`` cannot have written."""
    key = SessionKey(body["namespace"], body["id"])
    # The bytes are in files beside the documents: a row with a size but without data refers to such a file.
    for medium in (*body.get("media", ()), *(file for file in body.get("files", ()) if file["hash"])):
        blobs.insert_blob_row(db, key.namespace, medium["hash"], mime=medium["mime"], size=medium["size"])
    for table, columns in document_tables(db).items():
        rows = body.get(table, [])
        for row in [rows] if table == "sessions" else rows:
            names = [name for name in columns if name in row]
            values = (key.namespace, key.id, *(_to_column(name, row[name]) for name in names))
            columns_sql = ", ".join([*_key_columns(table), *names])
            db.execute(f"INSERT INTO {table} ({columns_sql}) VALUES ({', '.join('?' * len(values))})", values)


def from_bytes(data: bytes) -> Mapping[str, Any] | None:
    """Parse a document. Returns None for JSON that is not a session document. Raises ValueError for text that is not
    JSON."""
    try:
        body = json.loads(data)
    except RecursionError as error:
        raise ValueError("too many levels") from error
    return body if isinstance(body, dict) and body.get("format") == FORMAT else None


def to_bytes(body: Mapping[str, Any]) -> bytes:
    """Serialize with indentation. Characters are escaped only where UTF-8 cannot encode them (lone surrogates)."""
    try:
        return (json.dumps(body, ensure_ascii=False, indent=1) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(body, indent=1) + "\n").encode()


def _rows(db: sqlite3.Connection, table: str, names: list[str], key: SessionKey) -> list[dict[str, Any]]:
    where = " AND ".join(f"t.{name} = ?" for name in _key_columns(table))
    columns_sql = ", ".join(f"t.{name}" for name in names)
    source, order = f"{table} AS t", _order_column(names)
    if table == "media":
        source += " JOIN blobs AS b ON b.namespace = t.namespace AND b.hash = t.hash"
        columns_sql, names = f"{columns_sql}, b.mime, b.size", [*names, "mime", "size"]
    rows = db.execute(f"SELECT {columns_sql} FROM {source} WHERE {where} ORDER BY {order}", (key.namespace, key.id))
    return [{name: _to_json(name, value) for name, value in zip(names, row, strict=True)} for row in rows]


def _order_column(names: list[str]) -> str:
    """Return the column by which a table's rows are sorted in a document: the first of ``seq``, ``ordinal``,
    ``created``, ``id``, ``last`` and ``time`` that the table has. So rows are in the order in which they were
    written."""
    return next((f"t.{name}" for name in ("seq", "ordinal", "created", "id", "last", "time") if name in names), "1")


def _key_columns(table: str) -> tuple[str, str]:
    return ("namespace", "id") if table == "sessions" else ("namespace", "session")


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if name not in _JSON or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {"unreadable": value}


def _to_column(name: str, value: Any) -> Any:
    if name not in _JSON:
        return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
    if isinstance(value, dict) and set(value) == {"unreadable"}:
        return value["unreadable"]
    return serialization.encode_value(value)


def read_version(body: Mapping[str, Any], newest: int) -> int:
    """Return the version of the tables from which the document was written. Raises InvalidRequest if it is newer than
    ``newest`` or not a version."""
    version = body.get("version")
    if type(version) is not int or version < 1:
        raise InvalidRequest("it has no version")
    if version > newest:
        raise InvalidRequest(f"it was written by a newer agent-kernel (format {version}, this one knows {newest})")
    return version
