"""Images and videos as inputs of a local model."""
