"""How tools are described to a local model, and how the model's calls are recognised in its output: through chat
templates, code fences and parsers."""
