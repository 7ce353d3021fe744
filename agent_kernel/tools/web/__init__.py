"""Web tools: a search with exchangeable providers, and web pages as text. All results are text from unknown sources."""
