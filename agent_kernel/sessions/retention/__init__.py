"""When sessions expire, and how much a store may hold."""
