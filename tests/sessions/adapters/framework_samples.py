"""Compares what a store holds after a copy with what the framework itself reads from its files: for each file there is
a JSON document that the framework's own classes wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from agent_kernel.sessions.adapters.selectools_messages import EMPTY
from agent_kernel.sessions.adapters.selectools_sessions import SavedSessions
from agent_kernel.sessions.store.sqlite import SqliteStore

DATA = Path(__file__).parents[1] / "data" / "frameworks"
AGENTS = ("openai_agents_simple.db", "openai_agents_advanced.db", "openai_agents_sqlalchemy.db")
SELECTOOLS = ("selectools.db", "selectools_documents")
Read = dict[str, Any]


def expected(file: Path) -> Read:
    read: Read = json.loads(file.with_suffix(".json").read_text("utf-8"))
    return read


async def read_as_agents_sdk(store: SqliteStore, file: Path) -> Read:
    """Return the items of all branches, as AgentsSession gives them."""
    read: Read = {}
    for id, branches in expected(file).items():
        key = SessionKey("local", id)
        read[id] = {}
        for name in branches:
            await store.switch(key, name)
            read[id][name] = await AgentsSession(id, store).get_items()
        await store.switch(key, "main")
    return read


async def read_as_selectools(store: SqliteStore, file: Path) -> Read:
    """Return the memories, as SelectoolsStore loads them."""
    sessions = SavedSessions(store, None, lambda: 0.0)
    read: Read = {}
    for id in expected(file):
        namespace, _, name = id.rpartition(":")
        split = file.is_dir() and namespace  # in a database the namespace is a part of the id
        loaded = await sessions.load(SessionKey(namespace, name) if split else SessionKey("local", id))
        read[id] = loaded and loaded.memory
    return read


def with_every_field(read: Read) -> Read:
    """Return the memories with null for absent fields of messages."""
    return {
        id: memory | {"messages": [EMPTY | message for message in memory["messages"]]} for id, memory in read.items()
    }
