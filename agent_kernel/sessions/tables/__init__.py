"""The SQL statements of the session store, one module per table or task. The functions take an open connection and run
inside its transaction; ``store/sqlite.py`` calls them."""
