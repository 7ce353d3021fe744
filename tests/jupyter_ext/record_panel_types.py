"""Write the TypeScript types of the API for the panel: ``python -m tests.jupyter_ext.record_panel_types``.

The types are those of the classes from which the OpenAPI document is generated, and of the messages of the WebSocket.
Descriptions are left out: otherwise every changed docstring would change the panel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from agent_kernel.core.events import EVENT_TYPES
from jupyter_ext.api.native import socket
from jupyter_ext.api.openapi.json_schemas import ResponseSchemaGenerator
from jupyter_ext.api.schemas import errors, events, server, sessions, turns
from tests.server import ROOT

FILE = ROOT / "ui" / "src" / "wire" / "schema.ts"
HEAD = """\
/** Types of the API, described in its OpenAPI document. Written by `python -m tests.jupyter_ext.record_panel_types`; a
 * test compares them with the server. */
/* eslint-disable max-lines */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Facts = Record<string, Json>;
"""
EventBodies: Any = TypedDict("EventBodies", dict(EVENT_TYPES))  # type: ignore[misc]  # keys from the events
"""The body of an event by its type."""
RECEIVED: tuple[Any, ...] = (
    *(errors.ErrorFacts, events.InfillEvent, events.PullEvent, EventBodies),
    *(server.Beside, server.Binding, server.Models, server.Recommendation, server.Trust),
    *(server.ModelServers, server.ProbeReport),
    *(sessions.Branches, sessions.Found, sessions.Meanwhile, sessions.Permissions, sessions.Sessions),
    *(sessions.TakenBack, sessions.Usage),
    *(turns.KernelVariables, turns.Outputs, turns.Started, turns.Stored, turns.Turns),
)
SENT: tuple[Any, ...] = (socket.Follow, socket.Unfollow, socket.Watch, socket.Serve, socket.Unserve, socket.Ping)
PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def panel_types() -> str:
    wanted: list[Any] = [(kind, "serialization", TypeAdapter(kind)) for kind in RECEIVED]
    wanted += [(kind, "validation", TypeAdapter(kind)) for kind in SENT]
    for _, _, adapter in wanted:
        adapter.rebuild()
    definitions = TypeAdapter.json_schemas(wanted, ref_template="{model}", schema_generator=ResponseSchemaGenerator)[1][
        "$defs"
    ]
    return "\n".join([HEAD, *(_declaration(name, schema) for name, schema in sorted(definitions.items()))])


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_type(schema)};\n"
    required = schema.get("required", ())
    fields = (
        f"  {_key(field)}{'' if field in required else '?'}: {_type(kind)};"
        for field, kind in schema["properties"].items()
    )
    return "\n".join([f"export interface {name} {{", *fields, "}", ""])


def _key(field: str) -> str:
    return json.dumps(field) if "." in field else field


def _type(schema: Mapping[str, Any]) -> str:
    """The TypeScript type of a schema. Raises KeyError for a kind of schema that no class of the API has yet."""
    if "$ref" in schema:
        return str(schema["$ref"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(map(_type, choices))
    if "type" not in schema:
        return "Json"
    if schema["type"] == "array":
        item = _type(schema["items"])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if schema["type"] == "object":
        values = schema["additionalProperties"]
        return "Facts" if values is True else f"Record<string, {_type(values)}>"
    return PLAIN[schema["type"]]


if __name__ == "__main__":
    FILE.write_text(panel_types(), encoding="utf-8")
