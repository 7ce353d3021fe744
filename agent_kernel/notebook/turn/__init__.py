"""One turn of an agent cell: the request, its events, approvals, and the calls that the kernel runs."""
