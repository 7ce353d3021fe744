"""Engines answer prompts: models of this machine, servers with OpenAI's API, and scripted answers for tests. The
registry finds an engine by name. The package ``turn`` processes the answers."""
