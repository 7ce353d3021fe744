"""Where agent code runs jailed: a Linux sandbox through system calls only (no helper binary, no privileges needed).

``policy`` says how much, ``view`` what is visible, ``jail`` the layers in order, ``worker`` what runs inside and
``pool`` is the ``Sandbox`` the rest of the project uses.
"""
