"""The routes of our own API, ``agent/v1``."""
