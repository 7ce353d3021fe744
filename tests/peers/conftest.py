"""Limits collection: files that need another framework's package are collected only in its environment
(``test_contracts.py``).
"""

collect_ignore = ["agents_sdk", "selectools"]
