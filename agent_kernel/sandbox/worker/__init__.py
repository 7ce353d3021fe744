"""The processes that run inside the sandbox: the supervisor, and the worker that executes code. Standard
library only."""
