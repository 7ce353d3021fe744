"""A fork of the kernel in which code runs first; what it changed is applied on request."""
