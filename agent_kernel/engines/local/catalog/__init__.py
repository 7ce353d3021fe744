"""Lists models and worker environments, and downloads, verifies, converts and stores them."""
