"""Serves the panel as a web page at the root of ``agent-kernel serve``: the page, its files and the login. The API that
the page uses is in the other packages of ``api``."""
