"""Runs code that nobody has read in a jailed process, through system calls only (no helper binary, no privileges)."""
