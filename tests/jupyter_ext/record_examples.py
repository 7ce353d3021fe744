"""Record an example of each operation from a real server: ``python -m tests.jupyter_ext.record_examples``.

It writes files of the package, which ``openapi.json`` includes. Lists and long texts are cut, and names of this machine
are replaced.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx

from jupyter_ext.api.openapi.document import EXAMPLES, verbs
from jupyter_ext.api.routes import PREFIX, routes
from tests.jupyter_ext.test_auth import SCRIPT, TABLE, World, filled, prepare
from tests.server import ROOT, AgentServer

MAX_ITEMS, MAX_TEXT = 2, 240
SKILL = b"---\nname: reports\ndescription: Write monthly reports.\n---\nBegin with the total.\n"
FILES = {"files": ("reports/SKILL.md", SKILL, "text/markdown")}
UPLOAD = {"file": ("a.txt", b"hello", "text/plain")}
OWN_FILE, OWN_SKILL, OWN_BRANCH = "{own file}", "{own skill}", "{own branch}"
MORE: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "files", {"files": UPLOAD, "data": {"purpose": "user_data"}}),
    ("DELETE", f"files/{OWN_FILE}", {}),
    ("POST", "skills", {"files": FILES}),
    ("GET", f"skills/{OWN_SKILL}", {}),
    ("POST", f"skills/{OWN_SKILL}/versions", {"files": FILES}),
    ("GET", f"skills/{OWN_SKILL}/versions", {}),
    ("DELETE", f"skills/{OWN_SKILL}", {}),
    ("PUT", "binding?path=1.ipynb", {"json": {"session": "{spare}"}}),
    ("DELETE", "binding?path=1.ipynb", {}),
    ("POST", "sessions/{spare}/branches", {"json": {"before": "{done}"}}),
    ("PUT", "sessions/{spare}/branch", {"json": {"name": "main"}}),
    ("DELETE", f"sessions/{{spare}}/branches/{OWN_BRANCH}", {}),
    ("GET", "models/default", {}),
    ("DELETE", "responses/{response}", {}),
    ("POST", "agent/approvals/{approval}", {"json": {"decision": "approve"}}),
    ("POST", "engine/unload", {"json": {}}),
]
"""Requests beside those of the table, in this order, for routes of which that one has refusals only."""
KEEPS = {"post_files": OWN_FILE, "post_skills": OWN_SKILL, "post_sessions_session_id_branches": OWN_BRANCH}
CLAIM = {"call": "call-1", "client": "my program"}
CLAIMED = {"token": "c1f0", "lease_s": 30.0, "renew_s": 10.0, "name": "python", "arguments": {"code": "6 * 7"}}
SESSION_OF_FILE = {"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
CONVERSATION = {"id": "conv_1", "object": "conversation", "created_at": 1_790_000_000, "metadata": {"topic": "a"}}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "user",
    "status": "completed",
    "content": [{"type": "input_text", "text": "hello"}],
}
WRITTEN: dict[str, Any] = {
    "get_openapi_json": {"status": 200, "reply": {"openapi": "3.1.0", "info": {"title": "agent-kernel"}}},
    "post_turns_turn_id_claims": {"request": CLAIM, "status": 200, "reply": CLAIMED},
    "post_turns_turn_id_claims_call": {
        "request": {"action": "finish", "token": "c1f0", "status": "success", "text": "42"},
        "status": 200,
        "reply": {},
    },
    "post_trust": {
        "request": {"trust": True},
        "status": 200,
        "reply": {"path": "/home/ada/notebooks", "since": 1_790_000_000.0, "files": [".mcp.json"]},
    },
    "delete_trust": {"status": 200, "reply": {"folder": "/home/ada/notebooks", "removed": True}},
    "post_beside": {"request": SESSION_OF_FILE},
    "delete_conversations_id": {
        "status": 200,
        "reply": {"id": CONVERSATION["id"], "object": "conversation.deleted", "deleted": True},
    },
    "get_conversations_id_items_item": {"status": 200, "reply": MESSAGE},
    "delete_conversations_id_items_item": {"status": 200, "reply": CONVERSATION},
    "post_engine_unload": {"request": {}},
    "post_infill": {
        "request": {
            "prefix": "def mean(values):\n    return sum(values) / ",
            "suffix": "\n",
            "context": "values = [1, 2, 3]",
        },
        "status": 200,
        "reply": {"text": "len(values)", "silence": ""},
    },
    "post_sessions_session_id_branches": {
        "request": {"before": "turn-1", "name": "another way"},
        "status": 201,
        "reply": {"name": "another way", "parent": "main", "since": 4, "head": 4, "turns": 1, "current": True},
    },
    "delete_sessions_session_id_branches_name": {"status": 200, "reply": {"name": "another way", "deleted": True}},
    "post_binds_bind_id_confirm": {"request": {"decision": "confirmed"}},
    "get_mcp": {"status": 200, "reply": {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}},
    "post_models_name_pull": {
        "request": {"consent": True},
        "status": 200,
        "reply": {"stage": "download", "done": 1_048_576, "total": 986_048_512, "message": ""},
    },
}
"""Of what needs a model, a click of a person, or a client that holds a call."""


def shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shorten(item) for item in value[:MAX_ITEMS]]
    return value[:MAX_TEXT] if isinstance(value, str) else value


def content_of(reply: httpx.Response) -> Any:
    kind = reply.headers.get("Content-Type", "")
    if "json" in kind:
        return shorten(reply.json())
    if "event-stream" in kind:
        line = next((line for line in reply.text.splitlines() if line.startswith("data: {")), "")
        return shorten(json.loads(line[6:])) if line else None
    return reply.text[:MAX_TEXT]


def record(world: World) -> dict[str, Any]:
    """Return ``{operation: {request, status, reply}}``, with the names of the OpenAPI document."""
    found = dict(WRITTEN)
    known = list(verbs(routes(), PREFIX))
    names = dict(world.names)
    asked = [(method, path, {} if body is None else {"json": body}) for method, path, body, _ in TABLE]
    with world.client("token") as client:
        for method, path, given in [*asked, *MORE]:
            place = path if "{own " not in path else re.sub(r"{own \w+}", lambda own: names.get(own[0], "none"), path)
            url = f"{PREFIX}/{filled(place, names)}"
            bare = url.partition("?")[0].removeprefix(PREFIX)
            verb = next((v for v in known if v.method.upper() == method and re.fullmatch(v.path, bare)), None)
            if verb is None or verb.id in found:
                continue
            sent = filled(given["json"], names) if "json" in given else None
            reply = client.request(method, url, **({"json": sent} if "json" in given else given))
            if reply.status_code < 300:
                found[verb.id] = {"request": sent, "status": reply.status_code, "reply": content_of(reply)}
                if verb.id in KEEPS:
                    body = reply.json()
                    names[KEEPS[verb.id]] = body.get("id") or body.get("name") or body.get("branch", {}).get("name", "")
    return found


def anonymous(text: str, server: AgentServer) -> str:
    places = {str(server.directory): "/home/ada", str(ROOT): "/opt/agent-kernel", str(Path.home()): "/home/ada"}
    for old, new in {**places, f":{server.port}": ":8888", "127.0.0.1": "localhost"}.items():
        text = text.replace(old, new)
    return text


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = AgentServer(Path(directory) / "server", SCRIPT)
        server.directory.mkdir()
        with server:
            found = record(asyncio.run(prepare(server)))
        text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        EXAMPLES.write_text(anonymous(text, server) + "\n")
    names = {verb.id for verb in verbs(routes(), PREFIX)}
    print(f"{len(found)} of {len(names)} operations; none of", *sorted(names - found.keys()))


if __name__ == "__main__":
    main()
