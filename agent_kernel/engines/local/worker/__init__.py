"""The process that holds a local model, the engine that talks to it, and the messages between them."""
