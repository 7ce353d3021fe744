"""What answers a prompt: local models, servers with OpenAI's API, scripted answers for tests."""
