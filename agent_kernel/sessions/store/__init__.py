"""The implementations of the session store: a SQLite file, JSON files, memory, and a database that several servers
share."""

# SessionStore was defined here before, so programs may still import it from this package.
from agent_kernel.core.seams.session_store import SessionStore

__all__ = ["SessionStore"]
