"""The HTTP routes. There is one package for each wire format; ``http`` contains what all of them use."""
