"""Tools that search earlier conversations."""
