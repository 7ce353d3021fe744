"""Descriptions of request and response bodies, from which the OpenAPI document is made."""
