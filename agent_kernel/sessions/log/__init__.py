"""The log of changes through which several servers share one database: the interface ``LogStore``, and its
implementations for several databases.

The session store that uses the log is in ``store``: a ``SharedStore`` keeps a copy of all rows in SQLite, and exchanges
changes of rows with other servers through the log.
"""
