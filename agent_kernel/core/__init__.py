"""Values and interfaces that every other package uses: messages, events, errors, settings, sessions, egress policy,
paths.

Nothing here imports another package of agent_kernel.
"""
