"""The web as tools: a search behind a seam, and pages as text. What comes from there is text of others."""
