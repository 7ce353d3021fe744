"""An MCP server of the protocol before 2026 that uses only the standard library: it starts at once and misbehaves as
its arguments say.

``plain.py LOG [deaf]``: LOG gets a line for each message; ``deaf`` never answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1])
DEAF = sys.argv[2:] == ["deaf"]
TOOLS = [
    "hold",
    "crash",
    "flood",
    "junk",
    "odd",
    "environment",
    "leak",
    "same name",
    "same_name",
    "x" * 90,
    "more",
    "unasked",
]
schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
held: list[Any] = []


def say(body: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **body}) + "\n")
    sys.stdout.flush()


def answer(id: Any, text: str) -> None:
    say({"id": id, "result": {"content": [{"type": "text", "text": text}]}})


def call(id: Any, name: str, arguments: dict[str, Any]) -> None:
    if name == "hold":
        held.append(id)
    elif name == "crash":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "flood":
        answer(id, "x" * (arguments["n"] << 20))
    elif name == "junk":
        sys.stdout.write("this is no JSON\n")
        answer(id, "after junk")
    elif name == "odd":
        sys.stdout.flush()
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id)
        sys.stdout.buffer.write([b"caf\xe9", b"half \\ud800", b"torn\x00"][arguments["n"]] + b'"}]}}\n')
        sys.stdout.buffer.flush()
    elif name == "environment":
        answer(id, " ".join(sorted(os.environ)))
    elif name == "leak":
        say({"id": id, "error": {"code": -32000 - 7, "message": f"wrong key {os.environ['KEY']}"}})
    elif name == "more":
        TOOLS.append("later")
        say({"method": "notifications/tools/list_changed"})
        answer(id, "there is more")
    else:
        answer(id, f"{name} {json.dumps(arguments)}")


for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    with LOG.open("a") as log:
        log.write(f"{os.getpid()} {method} {params.get('name') or params.get('requestId') or ''}\n")
    if DEAF:
        time.sleep(600)
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "plain", "version": "1"}
        version = params["protocolVersion"]
        say({"id": id, "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}})
    elif method == "tools/list":
        tools = [{"name": name, "description": "d", "inputSchema": schema} for name in TOOLS]
        broken = {"name": "broken", "inputSchema": {"type": "object", "properties": {"n": {"type": 7}}}}
        patient = {"name": "patient", "inputSchema": schema, "execution": {"taskSupport": "required"}}
        say({"id": id, "result": {"tools": [*tools, broken, patient]}})
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments") or {})
    elif method == "notifications/cancelled":
        held.remove(params["requestId"])
    elif id is not None:
        say({"id": id, "error": {"code": -32601, "message": "no such method"}})
