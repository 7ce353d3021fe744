"""Runs one turn for an agent cell: builds its request, displays its events, answers its approval requests, and runs its
calls in the kernel."""
