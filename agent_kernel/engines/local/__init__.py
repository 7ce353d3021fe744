"""Models that run on this machine, in a worker process of their own."""
