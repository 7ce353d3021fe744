"""The SQL of the session store, one module for each table or concern."""
