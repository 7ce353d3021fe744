"""The implementations of the session store: a SQLite file, JSON files, memory, and a database that several servers
share."""

# Programs import the interface from here, where it was defined before.
from agent_kernel.core.seams.session_store import SessionStore

__all__ = ["SessionStore"]
