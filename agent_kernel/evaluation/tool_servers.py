"""Runs the servers that tasks with tools need: a web server for the tasks' pages, and the MCP server of a shop."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.task import Task

SHOP = "shop"
"""Name of the MCP server. The model sees the server's tools as ``shop_NAME``."""
SHOP_PROGRAM = Path(__file__).with_name("shop_server.py")
UNSAFE = re.compile(r"[^a-z0-9]+")


class TaskSite:
    """The web pages of one task, whose addresses begin with ``url``. ``requested`` contains the paths that were
    requested so far."""

    def __init__(self, url: str, pages: Mapping[str, str]) -> None:
        self.url = url
        self.requested: set[str] = set()
        self._pages = pages

    def page(self, path: str) -> str | None:
        """Return the text of the page at ``path``, or None if it does not exist. Only pages that exist are added to
        ``requested``."""
        if (text := self._pages.get(path)) is not None:
            self.requested.add(path)
        return text


class PageServer:
    """Serves the pages of tasks at 127.0.0.1, on a free port. It is used as a context manager, and runs in separate
    threads."""

    def __init__(self) -> None:
        self._sites: dict[str, TaskSite] = {}
        sites = self._sites

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name, _, path = self.path.partition("?")[0].lstrip("/").partition("/")
                text = site.page("/" + path) if (site := sites.get(name)) else None
                body = (text if text is not None else "There is no such page.").encode()
                self.send_response(200 if text is not None else 404)
                self.send_header("Content-Type", _content_type(path))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing, because stderr shows the progress of the tasks."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="task pages", daemon=True)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def publish(self, task: Task, repetition: int) -> TaskSite:
        """Serve the pages of a task below a URL of their own, and return them as a TaskSite. It replaces that of an
        earlier attempt at the task with the same ``repetition``."""
        name = UNSAFE.sub("-", f"{task.name} {repetition}".lower())
        self._sites[name] = TaskSite(f"http://{self.host}/{name}", task.serves)
        return self._sites[name]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def tool_settings(tasks: Sequence[Task], pages: PageServer, folder: Path) -> dict[str, str]:
    """Return the settings with which a server can run these tasks. With them the server may fetch the tasks' pages,
    denies the tools that the tasks forbid, and starts the example MCP server (a shop) if a task uses its tools. The MCP
    configuration is written into ``folder``. Raises InvalidRequest if the package ``mcp`` is needed and missing."""
    settings: dict[str, str] = {}
    if any(task.serves for task in tasks):
        # The web tools are on only if a search provider is set. The address of this provider answers every search with
        # an error.
        settings |= {"web_hosts": pages.host, "web": f"searxng:http://{pages.host}/search"}
    if denied := sorted({name for task in tasks for name in task.forbidden}):
        settings["policy"] = json.dumps(dict.fromkeys(denied, "deny"))
    if any(name.startswith(f"{SHOP}_") for task in tasks for name in (*task.ran, *task.forbidden)):
        if importlib.util.find_spec("mcp") is None:
            raise InvalidRequest(
                "These tasks need an MCP server, and the package mcp is not installed.",
                hint="Install it: pip install 'agent-kernel[mcp]'.",
            )
        config = folder / "mcp.json"
        server = {"command": sys.executable, "args": ["-P", str(SHOP_PROGRAM)]}
        config.write_text(json.dumps({"mcpServers": {SHOP: server}}), encoding="utf-8")
        settings["mcp_config"] = str(config)
    return settings


def _content_type(path: str) -> str:
    kinds = {".html": "text/html", ".json": "application/json"}
    return f"{kinds.get(Path(path).suffix, 'text/plain')}; charset=utf-8"
