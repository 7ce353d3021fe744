"""Runs stored turns again and compares the answers."""
