"""Full-text search in sessions."""
