"""Compares the numbers of an answer with the numbers that its tool calls printed."""
