"""Fetches that nobody here chose the address of: checked, bounded, and made to the address that was checked."""
