"""Runs a model on a Ray cluster: a Ray Serve application with the chat/completions API and nothing else of the server.
It has no sessions, no agent and no tools; servers use it as an engine of the kind ``openai_api``."""
