"""The sandbox for the model's code: ``host`` is the server's side, ``jail`` the layers that restrict a process,
``worker`` the code that runs inside.
"""
