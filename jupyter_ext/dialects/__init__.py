"""Other houses' words for a turn: pure codecs from a request to a TurnRequest, and from events to their answers."""
