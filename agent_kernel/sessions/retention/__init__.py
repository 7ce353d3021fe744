"""Retention of sessions: when they expire, and how many a namespace may hold."""
