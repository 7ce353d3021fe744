"""The chat panel as a widget in a cell's output."""
