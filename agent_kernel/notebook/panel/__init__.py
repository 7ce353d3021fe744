"""Displays the chat panel as a widget in the output of a cell. Uses anywidget besides the standard library and
IPython."""
