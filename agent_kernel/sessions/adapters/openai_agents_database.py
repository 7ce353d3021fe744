"""Reads the SQLite files of the OpenAI Agents SDK: those of SQLiteSession, AdvancedSQLiteSession and SQLAlchemySession,
with the names that tables have by default."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Usage
from agent_kernel.core.session import MAIN, SessionKey
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.adapters.framework_files import Columns, FrameworkSession, has_columns, open_database
from agent_kernel.sessions.adapters.openai_agents import RECORD, to_message
from agent_kernel.sessions.adapters.transcript_builder import (
    SourceBranch,
    SourceMessage,
    SourceSession,
    build_transcript,
)
from agent_kernel.sessions.export.formats.json_reader import loads
from agent_kernel.sessions.serialization import MAX_DEPTH

MAX_BYTES = 128 * 2**20
"""Maximum size of one stored message in bytes."""
FRAMEWORK = "the OpenAI Agents SDK"
TABLES: Columns = {
    "agent_sessions": frozenset({"session_id", "created_at", "updated_at"}),
    "agent_messages": frozenset({"id", "session_id", "message_data", "created_at"}),
}
STRUCTURE = frozenset({"id", "session_id", "message_id", "branch_id", "user_turn_number", "created_at"})
USAGE = frozenset({"session_id", "branch_id", "user_turn_number", "input_tokens", "output_tokens"})
UNLISTED = "without branch"
"""Name of the branch with the messages that AdvancedSQLiteSession does not list, because SQLiteSession stored them."""
Places: TypeAlias = Mapping[tuple[str, Any], int]
"""(branch, number of a turn) -> number of the first message of that turn on that branch."""


class AgentsDatabase:
    """The sessions in the file ``path``. They belong to ``namespace``, because the SDK has no namespaces."""

    def __init__(self, path: Path, namespace: str) -> None:
        self._path = path
        self._namespace = namespace

    def sessions(self) -> list[FrameworkSession]:
        query = """
            SELECT session_id FROM agent_sessions UNION SELECT session_id FROM agent_messages
            EXCEPT SELECT NULL
        """
        with open_database(self._path, TABLES, FRAMEWORK) as db:
            ids = [str(id) for (id,) in db.execute(query)]
        return [FrameworkSession(self._namespace, id, id) for id in sorted(ids)]

    def read(self, session: FrameworkSession) -> Transcript | None:
        key = SessionKey(session.namespace, session.id)
        with open_database(self._path, TABLES, FRAMEWORK) as db:
            query = "SELECT created_at, updated_at FROM agent_sessions WHERE session_id = ?"
            row = db.execute(query, (session.id,)).fetchone()
            messages = list(_select_messages(db, session.id))
            if row is None and not messages:
                return None
            branches, places = _select_branches(db, session.id, messages)
            usage = _select_usage(db, session.id, places)
        created, updated = (_seconds(value, 0.0) for value in row or (None, None))
        times = [message.time for message in messages]
        created = created or min(times, default=0.0)
        updated = max(updated, created, *times)
        return build_transcript(SourceSession(key, created, updated, messages, RECORD, branches, usage))


def _select_messages(db: sqlite3.Connection, id: str) -> Iterator[SourceMessage]:
    query = "SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id"
    time = 0.0
    for number, text, stored in db.execute(query, (id,)):
        if number < 0 or not isinstance(text, str):
            raise InvalidRequest(f"The message {number} is not stored as text.")
        item = loads(text.encode("utf-8", "surrogatepass"), MAX_BYTES, MAX_DEPTH, document_name=f"message {number}")
        if not isinstance(item.value, dict):
            item.refuse("is not an object")
        time = _seconds(stored, time)
        yield SourceMessage(number, text, time, to_message(item.value))


def _select_branches(
    db: sqlite3.Connection, id: str, messages: Sequence[SourceMessage]
) -> tuple[list[SourceBranch], Places]:
    """Return the branches of an AdvancedSQLiteSession, the first one ``main`` if it exists; none for other sessions."""
    if not has_columns(db, "message_structure", STRUCTURE):
        return [], {}
    known = {message.number: message for message in messages}
    numbers: dict[str, set[int]] = {}
    created: dict[str, float] = {}
    places: dict[tuple[str, Any], int] = {}
    query = """
        SELECT branch_id, message_id, user_turn_number, created_at FROM message_structure WHERE session_id = ?
        ORDER BY branch_id <> ?, id
    """
    for name, number, turn, stored in db.execute(query, (id, MAIN)):
        if number in known:
            numbers.setdefault(str(name), set()).add(number)
            created.setdefault(str(name), _seconds(stored, known[number].time))
            places.setdefault((str(name), turn), number)
    if numbers and (rest := set(known) - set().union(*numbers.values())):
        numbers[UNLISTED] = numbers.get(UNLISTED, set()) | rest
        created.setdefault(UNLISTED, known[min(rest)].time)
    return [SourceBranch(name, created[name], sorted(listed)) for name, listed in numbers.items()], places


def _select_usage(db: sqlite3.Connection, id: str, places: Places) -> dict[int, Mapping[str, float]]:
    """Return the token counts of turns, each with the number of the first message of its turn."""
    if not has_columns(db, "turn_usage", USAGE):
        return {}
    query = "SELECT branch_id, user_turn_number, input_tokens, output_tokens FROM turn_usage WHERE session_id = ?"
    usage: dict[int, Mapping[str, float]] = {}
    for name, turn, read, written in db.execute(query, (id,)):
        number = places.get((str(name), turn))
        if number is not None and all(type(count) is int and count >= 0 for count in (read, written)):
            usage[number] = Usage(prompt_tokens=read, completion_tokens=written).to_json()
    return usage


def _seconds(value: object, default: float) -> float:
    """Convert ``value``, a time that SQLite wrote (UTC), to seconds since the epoch. Return ``default`` if ``value`` is
    not a time."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return default
    return max(0.0, (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
