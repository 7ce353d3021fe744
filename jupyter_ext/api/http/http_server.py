"""Creates the HTTP server of a Jupyter server that binds its sockets itself."""

from __future__ import annotations

from jupyter_server.serverapp import ServerApp
from tornado.httpserver import HTTPServer


def create_http_server(app: ServerApp) -> HTTPServer:
    """Return the HTTP server that ``app`` configures. It listens nowhere yet."""
    return HTTPServer(
        app.web_app,
        ssl_options=app.ssl_options,
        xheaders=app.trust_xheaders,
        max_body_size=app.max_body_size,
        max_buffer_size=app.max_buffer_size,
    )
