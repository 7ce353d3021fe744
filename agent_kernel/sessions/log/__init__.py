"""The log of changes that servers with a shared database have in common: the seam ``LogStore``, and its databases.

The sessions' own code is in ``store``: a ``SharedStore`` keeps a copy of the rows in SQLite and exchanges changes of
rows through the log."""
