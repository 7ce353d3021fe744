"""Sessions of other frameworks on our stores: OpenAI Agents SDK, selectools. Nothing here imports those frameworks
at import time.
"""
