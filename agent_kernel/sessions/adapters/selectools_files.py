"""Reads the files of selectools: the database of a SQLiteSessionStore, and the directory of a JsonFileSessionStore."""

from __future__ import annotations

from pathlib import Path

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt
from agent_kernel.core.session import SessionKey
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.adapters.framework_files import (
    Columns,
    FrameworkFiles,
    FrameworkSession,
    open_database,
)
from agent_kernel.sessions.adapters.selectools_messages import EMPTY, bodies_of, messages_of
from agent_kernel.sessions.adapters.selectools_sessions import RECORD, describe_window
from agent_kernel.sessions.adapters.selectools_window import text_of
from agent_kernel.sessions.adapters.transcript_builder import SourceMessage, SourceSession, build_transcript
from agent_kernel.sessions.export.formats.json_reader import Fields, loads
from agent_kernel.sessions.serialization import MAX_DEPTH

FRAMEWORK = "selectools"
TABLES: Columns = {"sessions": frozenset({"session_id", "memory_json", "created_at", "updated_at"})}
MAX_BYTES = 128 * 2**20
"""Maximum size of one session in bytes."""
FORM = {"session_id", "created_at", "updated_at", "memory"}


def open_selectools(path: Path, namespace: str) -> FrameworkFiles:
    """Return the sessions in the file or directory ``path``. Sessions that selectools stored without a namespace belong
    to ``namespace``."""
    return SelectoolsDirectory(path, namespace) if path.is_dir() else SelectoolsDatabase(path, namespace)


class SelectoolsDatabase:
    """The sessions of a SQLiteSessionStore. This store has a namespace only as a part of the id (``namespace:id``).
    Because an id without a namespace can contain a colon too, the id is not divided, and every session belongs to
    ``namespace``."""

    def __init__(self, path: Path, namespace: str) -> None:
        self._path = path
        self._namespace = namespace

    def sessions(self) -> list[FrameworkSession]:
        with open_database(self._path, TABLES, FRAMEWORK) as db:
            ids = [str(id) for (id,) in db.execute("SELECT session_id FROM sessions ORDER BY updated_at")]
        return [FrameworkSession(self._namespace, id, id) for id in ids]

    def read(self, session: FrameworkSession) -> Transcript | None:
        key = SessionKey(session.namespace, session.id)
        with open_database(self._path, TABLES, FRAMEWORK) as db:
            query = "SELECT memory_json, created_at, updated_at FROM sessions WHERE session_id = ?"
            row = db.execute(query, (session.id,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], str):
            raise InvalidRequest("The memory of this session is not stored as text.")
        memory = loads(row[0].encode("utf-8", "surrogatepass"), MAX_BYTES, MAX_DEPTH, document_name="memory")
        return _to_transcript(key, memory, Fields({"created_at": row[1], "updated_at": row[2]}, "session"))


class SelectoolsDirectory:
    """The sessions of a JsonFileSessionStore."""

    def __init__(self, path: Path, namespace: str) -> None:
        self._path = path
        self._namespace = namespace

    def sessions(self) -> list[FrameworkSession]:
        """Return the sessions. Raises InvalidRequest if no document of the directory is one of selectools."""
        documents = sorted(self._path.glob("*.json"))
        sessions = [self._describe(path) for path in documents]
        if not any(sessions):
            raise InvalidRequest(
                f"{self._path} is not a directory of {FRAMEWORK}: it has no document of a session.",
                hint="Nothing was copied. Check the path, and that FROM names the framework that wrote the files.",
            )
        # A document that is not from selectools is listed by its file name, so that it is reported and not left out
        # silently.
        return [
            session or FrameworkSession(self._namespace, path.name, path.name)
            for session, path in zip(sessions, documents, strict=True)
        ]

    def read(self, session: FrameworkSession) -> Transcript | None:
        try:
            document = (self._path / session.name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreCorrupt(f"The document cannot be read: {error.strerror}.") from error
        fields = loads(document, MAX_BYTES, MAX_DEPTH, document_name="document")
        fields.get("session_id", str)
        return _to_transcript(SessionKey(session.namespace, session.id), fields.child("memory"), fields)

    def _describe(self, path: Path) -> FrameworkSession | None:
        try:
            fields = loads(path.read_bytes(), MAX_BYTES, MAX_DEPTH, document_name="document")
            if not isinstance(fields.value, dict) or not fields.value.keys() >= FORM:
                return None
            namespace = fields.get("namespace", str, "") or self._namespace
            return FrameworkSession(namespace, fields.get("session_id", str), path.name)
        except (OSError, InvalidRequest):
            return None


def _to_transcript(key: SessionKey, memory: Fields, times: Fields) -> Transcript:
    """Convert a memory. selectools stores no times of messages, so every message gets the time when the session began.
    Raises InvalidRequest for a memory of another form."""
    bodies = [body.value for body in memory.each("messages")]
    created, updated = times.time("created_at"), times.time("updated_at")
    memory.get("max_messages", int)
    memory.get("max_tokens", int, 0)
    memory.get("summary", str, "")
    try:
        messages = messages_of(bodies)
        # Converting the messages back must give the original; selectools treats absent fields as null.
        if [text_of(body) for body in bodies_of(messages)] != [text_of(EMPTY | body) for body in bodies]:
            raise InvalidRequest("A message has fields that agent-kernel does not know.")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"A message has an unknown form ({type(error).__name__}).") from error
    stored = [
        SourceMessage(number, text_of(body), created, message)
        for number, (body, message) in enumerate(zip(bodies, messages, strict=True), start=1)
    ]
    metadata = describe_window(memory.value, len(stored), len(stored))
    return build_transcript(SourceSession(key, created, updated, stored, RECORD, metadata=metadata))
