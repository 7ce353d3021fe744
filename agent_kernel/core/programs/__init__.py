"""Programs that a model writes: their outcomes in a trial, and the corrections of their mistakes. No I/O of its own."""
