"""HTTP for tools: name resolution, address checks, size and time limits. Also postpones the import of a grammar of
addresses."""
