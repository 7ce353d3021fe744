"""Tools that read and change the open notebook."""
