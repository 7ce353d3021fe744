"""The tools that a model can call, grouped by the objects that they work on."""
