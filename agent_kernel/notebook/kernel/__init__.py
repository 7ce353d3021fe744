"""Runs code in the user's kernel, and reads, compares, copies and describes the variables there."""
