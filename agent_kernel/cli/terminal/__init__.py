"""Questions and conversations in a terminal."""
