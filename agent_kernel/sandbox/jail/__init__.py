"""The layers that restrict a process before code runs in it. Standard library only."""
