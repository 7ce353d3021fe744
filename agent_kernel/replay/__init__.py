"""Recorded turns run again, to see which answers still hold."""
