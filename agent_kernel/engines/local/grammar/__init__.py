"""Grammars that restrict an answer to JSON, a JSON schema, a regular expression or a choice."""
