"""From bytes to messages: frames on pipes, server-sent events, and how a reader follows a turn. No I/O of its own."""
