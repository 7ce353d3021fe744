"""Identifies who sends a request, and checks what the sender may do."""
