"""Code and variables in the user's kernel."""
