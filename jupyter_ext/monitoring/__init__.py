"""Metrics and logs of requests."""
