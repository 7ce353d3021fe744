"""Former import paths; each module forwards to the current one."""
