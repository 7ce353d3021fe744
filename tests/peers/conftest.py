"""What needs the real packages is collected in their environments only (``test_contracts.py``)."""

collect_ignore = ["agents_sdk", "selectools"]
