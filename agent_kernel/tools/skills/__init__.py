"""Skills, which are packages of instructions and files that a model loads on demand: storage, and tools that offer
them."""
