"""Measures how often the agent is right: task sets, the checks that decide, results and the comparison of two runs.

It runs ``%%agent`` cells of notebooks that ``jupyter_ext.headless`` opens, and knows no server itself."""
