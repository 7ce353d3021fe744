"""What all commands share: their description, their output, and the store that they open."""
