"""The sandbox, in which the model's code runs. ``host`` is the server's side, ``jail`` contains the layers that
restrict a process, and ``worker`` is the code that runs inside the jail.
"""
