"""Web tools: a search with exchangeable providers, and web pages as text. All results count as text of unknown
origin."""
