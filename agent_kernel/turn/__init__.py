"""Runs one turn from the request to the committed answer: the agent, the state of the turn, the model call, the
history, the context and the tool calls.

Models are in ``engines``, storage is in ``sessions``, single tools are in ``tools``.
"""
