"""The HTTP routes. Each wire format is one package; ``http`` holds what they share."""
