"""A web server on the loopback interface whose answers a function decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer: TypeAlias = tuple[int, Mapping[str, str], bytes]
"""The status, the headers and the body of a response."""


@contextmanager
def http_server(answer: Callable[[str, bytes], Answer], host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Answer each GET and POST with the result of ``answer(path, body)``, and yield the URL of the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  http.server looks for this name

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer((host, port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
