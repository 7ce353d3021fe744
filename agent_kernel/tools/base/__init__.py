"""What all tools share: schemas of functions, dispatch, limits, callbacks, calls that a client runs."""
