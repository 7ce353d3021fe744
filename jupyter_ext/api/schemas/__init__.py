"""Descriptions of request and response bodies, from which the OpenAPI document and the panel's types are generated."""
