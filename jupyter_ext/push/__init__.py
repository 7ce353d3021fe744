"""What the server sends to open pages over the socket."""
