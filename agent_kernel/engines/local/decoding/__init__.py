"""Decodes prompts to text, independently of the library that runs the model; ``backend`` is the interface to those
libraries.
"""
