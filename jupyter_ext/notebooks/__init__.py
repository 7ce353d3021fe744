"""Connects notebooks and kernels with sessions: which session belongs to a notebook, which code the server runs in a
kernel, and the files beside a notebook that hold its session (sidecars)."""
