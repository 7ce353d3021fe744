"""Removes secrets from text before it is stored or sent."""
