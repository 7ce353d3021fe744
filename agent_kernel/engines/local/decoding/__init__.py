"""Generates text from prompts, independently of the library that runs the model; ``backend`` is the interface to those
libraries.
"""
