"""The implementations of the session store: SQLite, JSON files, memory."""

# Programs import the interface from here, where it was defined before.
from agent_kernel.core.seams.session_store import SessionStore

__all__ = ["SessionStore"]
