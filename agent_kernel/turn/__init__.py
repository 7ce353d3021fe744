"""One turn from the request to the committed answer: the agent, its state, the model call, history, context and
tools.

Models are in ``engines``, storage is in ``sessions``, single tools are in ``tools``.
"""
