"""Drafts: a draft is a jailed fork of the kernel in which the model's code runs first. The user can then apply its
changes."""
