"""Applies the layers that restrict a process before code runs in it. Standard library only, because this code runs in
the processes that it restricts.
"""
