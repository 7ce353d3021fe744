"""Code that the three dialects share. A dialect is the API of another vendor: Chat Completions, Responses or
Messages."""
