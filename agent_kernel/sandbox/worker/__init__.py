"""The processes inside the sandbox: supervisor and worker. Standard library only."""
