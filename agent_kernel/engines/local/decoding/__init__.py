"""From a prompt to text, independent of the library that runs the model; ``backend`` is the interface of those
libraries.
"""
