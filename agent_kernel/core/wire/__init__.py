"""Converts bytes to messages: frames on pipes, server-sent events, and the events of a turn that a reader follows. Also
decides which cells of a notebook are prompts, and which format a file name stands for. The modules do no I/O."""
