"""The parts that all commands share: the description of a command, its output, and access to the session store."""
