"""Describes tools to a local model, and recognises the model's calls in its output: with chat templates, code fences
and parsers."""
