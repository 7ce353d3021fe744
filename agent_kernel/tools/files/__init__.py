"""Tools that list and read files, and the readers of documents."""
