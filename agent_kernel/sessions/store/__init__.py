"""The implementations of the session store: SQLite, JSON files, memory."""
