"""How tools are described to a local model and how its calls are read: chat templates, code fences, parsers."""
