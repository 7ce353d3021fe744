"""Runs a Jupyter server on a free port of this machine: ``python -m jupyter_ext.headless.free_port_server OPTIONS``.

Jupyter Server looks for a free port, releases it and binds it again later, so another program can take it in the
meantime. This server keeps the socket that it has bound. Its server information file has the port. The server stops,
with its kernels, when its stdin is closed, so it ends with the program that started it."""

from __future__ import annotations

import os

from jupyter_server.serverapp import ServerApp
from tornado.netutil import bind_sockets

from jupyter_ext.api.http.http_server import create_http_server

STDIN = 0


class FreePortServer(ServerApp):
    def init_httpserver(self) -> None:
        sockets = bind_sockets(0, self.ip)
        self.port = int(sockets[0].getsockname()[1])
        self._http_server = create_http_server(self)
        self.io_loop.add_callback(self.http_server.add_sockets, sockets)
        if os.name == "posix":  # on Windows no event loop can watch a pipe
            self.io_loop.add_handler(STDIN, self._on_stdin, self.io_loop.READ)

    def _on_stdin(self, descriptor: int, events: int) -> None:
        if not os.read(descriptor, 1024):
            self.io_loop.remove_handler(descriptor)
            self.stop()


if __name__ == "__main__":
    FreePortServer.launch_instance()
