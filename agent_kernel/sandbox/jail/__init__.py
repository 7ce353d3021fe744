"""The layers that restrict a process before code runs in it. Standard library only: this runs in the processes it
restricts.
"""
