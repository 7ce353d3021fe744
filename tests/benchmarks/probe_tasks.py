"""A server extension for benchmarks that returns the asyncio tasks of the server's process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado.web import authenticated


class HeldHandler(APIHandler):
    @authenticated
    def get(self) -> None:
        gc.collect()
        memory = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        held = {"tasks": tasks, "files": len(os.listdir("/proc/self/fd")), "kb": int(memory["VmRSS"].split()[0])}
        self.finish(json.dumps(held))


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tests.benchmarks.probe_tasks"}]


def _load_jupyter_server_extension(serverapp: Any) -> None:
    serverapp.web_app.add_handlers(".*$", [(f"{serverapp.base_url}probe/held", HeldHandler)])
