"""Lets programs (``sessions.py``) and other frameworks (OpenAI Agents SDK, selectools) keep their conversations in the
stores of agent-kernel. Importing these modules does not import those frameworks."""
