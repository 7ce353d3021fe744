"""One turn of an agent cell: its request, its events, its approvals, and the calls that run in the kernel."""
