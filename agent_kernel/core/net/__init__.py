"""HTTP for tools: name resolution, address checks, size and time limits."""
