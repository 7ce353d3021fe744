"""Lets other frameworks (OpenAI Agents SDK, selectools) keep their sessions in the stores of agent-kernel. Importing
these modules does not import those frameworks."""
