"""The formats of exported sessions, one module each."""
