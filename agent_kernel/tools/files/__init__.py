"""Tools that list and read files, and the code that extracts text from documents."""
