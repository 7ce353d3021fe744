"""Drafts: a jailed fork of the kernel in which the model's code runs first, and applying its changes on request."""
