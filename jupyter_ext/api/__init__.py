"""The HTTP routes. There is one package for each wire format; ``http`` contains the code that all of them use."""
