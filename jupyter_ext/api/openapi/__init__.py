"""Builds the OpenAPI document of the routes."""
