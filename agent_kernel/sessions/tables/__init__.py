"""The SQL of the session store, one module per table or concern. Functions take an open connection and run inside its
transaction; ``store/sqlite.py`` calls them."""
