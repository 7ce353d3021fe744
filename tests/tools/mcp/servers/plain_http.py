"""A streamable HTTP server of the protocol before 2026 that uses only the standard library: it has sessions, and loses
them.

``plain_http.py PORT LOG``: LOG gets a line for each call.
"""

from __future__ import annotations

import json
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SESSIONS: set[str] = set()
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("count", "forget")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, session = message["method"], self.headers.get("Mcp-Session-Id")
        if method == "initialize":
            made = secrets.token_hex(8)
            SESSIONS.add(made)
            info = {"name": "plain", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}}
            self.answer(
                message,
                {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info},
                {"Mcp-Session-Id": made},
            )
        elif session not in SESSIONS:
            self.reply(404 if session else 400, {"code": -32600, "message": "Session not found"}, message)
        elif "id" not in message:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif method == "tools/list":
            self.answer(message, {"tools": TOOLS})
        else:
            name = message["params"]["name"]
            with Path(sys.argv[2]).open("a") as log:
                log.write(f"0 {name}\n")
            if name == "forget":
                SESSIONS.clear()
            self.answer(message, {"content": [{"type": "text", "text": name}]})

    def do_GET(self) -> None:
        self.reply(405, {"code": -32600, "message": "no stream here"}, {})

    def do_DELETE(self) -> None:
        self.do_GET()

    def answer(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result}, 200, headers or {})

    def reply(self, status: int, error: Any, message: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status, {})

    def send(self, body: Any, status: int, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None: ...


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
