"""Skills: packages of instructions and files that a model loads on demand."""
