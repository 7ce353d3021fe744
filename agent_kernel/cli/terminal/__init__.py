"""The commands with which a user asks questions and holds conversations in a terminal."""
