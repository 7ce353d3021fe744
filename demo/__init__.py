"""What ``make demo`` runs: a notebook, cell by cell, in a real kernel of a real Jupyter server with the extension.

Not part of the installed package. It talks to the server as a browser would (REST and the kernel's WebSocket), so what
it shows is what a person gets.
"""
