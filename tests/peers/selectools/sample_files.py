"""Makes the files that test ``agent-kernel sessions copy selectools:PATH``, and writes beside each what selectools
itself reads from it: ``python -m tests.peers.selectools.sample_files DIRECTORY`` in an environment with selectools.

The files in tests/sessions/data/frameworks were made by this program with selectools 1.3.0.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from selectools.memory import ConversationMemory
from selectools.sessions import JsonFileSessionStore, SQLiteSessionStore
from selectools.types import Message, Role, ToolCall


def rain() -> ConversationMemory:
    """Return a memory with a complete call, a failed one, and a summary. Its window of 6 messages has dropped the first
    ones.
    """
    memory = ConversationMemory(max_messages=6)
    call = ToolCall(tool_name="measure", parameters={"place": "Köln"}, id="c1")
    failed = ToolCall(tool_name="measure", parameters={}, id="c2")
    memory.add_many(
        [
            Message(role=Role.USER, content="Hello"),
            Message(role=Role.ASSISTANT, content="Hello!"),
            Message(role=Role.USER, content="How much rain? 漢"),
            Message(role=Role.ASSISTANT, content="I measure.", tool_calls=[call, failed]),
            Message(role=Role.TOOL, content="2 mm", tool_name="measure", tool_result="2 mm", tool_call_id="c1"),
            Message(role=Role.TOOL, content="no place", tool_name="measure", tool_call_id="c2"),
            Message(role=Role.ASSISTANT, content="2 mm"),
            Message(role=Role.USER, content="Thank you."),
        ]
    )
    memory.summary = "They said hello."
    return memory


def waiting() -> ConversationMemory:
    """Return a memory that ends with a call without a result."""
    memory = ConversationMemory(max_messages=20, max_tokens=1000)
    call = ToolCall(tool_name="measure", parameters={}, id="c1")
    memory.add(Message(role=Role.USER, content="Measure."))
    memory.add(Message(role=Role.ASSISTANT, content="", tool_calls=[call]))
    return memory


def fill(store: Any) -> dict[str, Any]:
    saved = (("rain", None, rain()), ("rain", "ann", waiting()), ("empty", None, ConversationMemory(max_messages=5)))
    for id, namespace, memory in saved:
        store.save(id, memory, namespace=namespace)
    return {one.session_id: store.load(one.session_id).to_dict() for one in store.list()}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    database, documents = directory / "selectools.db", directory / "selectools_documents"
    database.unlink(missing_ok=True)
    shutil.rmtree(documents, ignore_errors=True)
    stores = {database: SQLiteSessionStore(str(database)), documents: JsonFileSessionStore(str(documents))}
    for path, store in stores.items():
        read = fill(store)
        path.with_suffix(".json").write_text(json.dumps(read, indent=1, ensure_ascii=False) + "\n", "utf-8")
    # Not every system allows a colon in a name, and the name is not read.
    (documents / "ann:rain.json").rename(documents / "ann-rain.json")
    with closing(sqlite3.connect(database)) as db:  # one file, without a journal beside it
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("VACUUM")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
