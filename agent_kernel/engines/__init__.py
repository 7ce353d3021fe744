"""Engines answer prompts: local models, servers with OpenAI's API, and scripted answers for tests. The registry finds
an engine by name; the package ``turn`` processes the answer."""
