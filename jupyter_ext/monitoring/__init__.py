"""Metrics of the server, and the tracking of requests for them."""
