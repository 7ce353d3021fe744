"""The worker process that runs a local model, the engine in the server that controls it, and the messages between
them."""
