"""The routes of agent-kernel's own API, ``agent/v1``."""
