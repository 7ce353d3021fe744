"""The notebook demo of ``make demo``: runs a notebook cell by cell in a real kernel of a real Jupyter server with the
extension.

Not part of the installed package. It uses REST and the kernel's WebSocket as a browser does, so that it shows what a
user sees.
"""
