"""Models that run on this machine, in a separate worker process."""
