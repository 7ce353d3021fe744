"""The process that holds a local model, the engine in the server that talks to it, and the messages between them."""
