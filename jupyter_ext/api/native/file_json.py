"""Converts files and lists of files to JSON: in OpenAI's format, which mistral.rs uses too, and in Anthropic's. The
functions have no side effects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from agent_kernel.core.files import File


def openai_file(file: File, session: str) -> dict[str, Any]:
    """Return a file in OpenAI's format.

    ``session`` is the id of a session that has the file. The status is always final (processed or error), because
    OpenAI's clients wait until a file is processed.
    """
    status = {"status": "error" if file.error else "processed", "status_details": file.message or None}
    return _facts(file, session) | {"object": "file", **status, "expires_at": int(file.expires) or None}


def container_file(file: File, session: str) -> dict[str, Any]:
    """Return a file of a session in OpenAI's format for files of a container. OpenAI's clients see a session as a
    container."""
    return _facts(file, session) | {"object": "container.file", "container_id": session, "path": file.name}


def anthropic_file(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "type": "file",
        "filename": file.name,
        "mime_type": file.mime,
        "size_bytes": file.size,
        "created_at": datetime.fromtimestamp(file.created, UTC).isoformat().replace("+00:00", "Z"),
        "downloadable": not file.error,
    }


def page(listed: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """Return one page of a list. The field ``has_more`` is always present, because clients that do not find it request
    pages forever. While it is true, clients request the next page, which begins after ``last_id``."""
    ends = {"first_id": listed[0]["id"] if listed else None, "last_id": listed[-1]["id"] if listed else None}
    return {"object": "list", "data": list(listed), **ends, "has_more": has_more}


def anthropic_page(listed: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    listing = page(listed, has_more=has_more)
    del listing["object"]
    return listing | {"next_page": listing["last_id"] if has_more else None}


def _facts(file: File, session: str) -> dict[str, Any]:
    facts = file.to_json()
    body = {
        "id": file.id,
        "bytes": file.size,
        "created_at": facts["created_at"],
        "filename": file.name,
        "purpose": file.purpose,
        "mime_type": file.mime,
        "source": facts["source"],
        "session": session,
    }
    return body | {name: facts[name] for name in ("format", "preview", "code", "message") if name in facts}
