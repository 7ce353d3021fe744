"""Code that all tools use: schemas of functions, sources of tools, time limits, dispatch, callbacks, and calls that a
client runs."""
