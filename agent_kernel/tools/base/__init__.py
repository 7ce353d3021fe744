"""Code that all tools share: schemas of functions, sources of tools, time limits, dispatch, callbacks, and calls that a
client runs."""
