"""Web tools: a search behind a seam, and pages as text. All results are text from strangers."""
