"""Measures how often the agent is right: task sets, checks of answers, results, and the comparison of two runs.

The tasks run as ``%%agent`` cells in notebooks that ``jupyter_ext.headless`` opens; this package starts no server."""
