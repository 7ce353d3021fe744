"""The tools that a model can call, grouped by what they work on."""
