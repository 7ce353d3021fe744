"""Keeps former import paths working. Each module here only imports names from the module that has them now."""
