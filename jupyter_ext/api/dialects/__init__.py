"""Code shared by the three compatible APIs (chat completions, Responses, Messages)."""
