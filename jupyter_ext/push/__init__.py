"""The messages that the server sends to open pages over the socket, and their connections."""
