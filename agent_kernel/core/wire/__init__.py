"""Converts bytes to messages: frames on pipes, server-sent events, and the events of a turn that a reader follows. No
I/O of its own."""
