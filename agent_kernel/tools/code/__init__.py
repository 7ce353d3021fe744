"""Tools that run code: Python and shell, in a sandbox or in a kernel."""
