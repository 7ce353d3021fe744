"""Builds the OpenAPI 3.1 document from the routes, the methods of their handlers, and the description of each
method."""

from __future__ import annotations

import functools
import inspect
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from agent_kernel.core.session import MAX_ID
from agent_kernel.tools.base.declared_schema import MAX_VALUES as SCHEMA_VALUES
from jupyter_ext.api.dialects.openai_content import MAX_CALLS, MAX_MESSAGES, MAX_TEXT
from jupyter_ext.api.dialects.openai_functions import MAX_VALUES as TOOLS_VALUES
from jupyter_ext.api.http.cross_origin import GUARD, list_verbs
from jupyter_ext.api.http.json_body import MAX_BODY, MAX_DEPTH, MAX_VALUES
from jupyter_ext.api.native.request_messages import MAX_PARTS
from jupyter_ext.api.native.request_schemas import MAX_DETAILS_BYTES, MAX_PICTURES, MAX_PICTURES_BYTES
from jupyter_ext.api.openapi.json_schemas import Schemas
from jupyter_ext.api.schemas.operation import ID_PATTERN, Operation, Parameter, Raw, operation_of

GROUP = re.compile(r"\((?:\[[^\]]*\][+*]?(?:\{\d+\})?|\.\+)\)")
NAME = {"type": "string", "minLength": 1}
ID = {**NAME, "maxLength": MAX_ID, "pattern": ID_PATTERN}
JSON = "application/json"
EVENT_STREAM = "text/event-stream"
ALWAYS = (400, 401, 403, 429, 503)
"""Error responses of every route: the request is invalid, the caller is not permitted, or the server is busy."""
OF_BODIES = (413, 415)
SECURITY: Mapping[str, Mapping[str, str]] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the server: the token of Jupyter, or a token created with `agent-kernel token new`.",
    },
    "api_key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same token as in `Authorization`.",
    },
    "kernel": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Agent-Kernel-Token",
        "description": "The credential that a notebook's kernel was started with; for the notebook's own sessions.",
    },
}
EXAMPLES = Path(__file__).with_name("examples.json")
"""The file with examples of requests and responses, which were recorded from a server with a scripted model."""
LIMITS: Mapping[str, int] = {
    "body_bytes": MAX_BODY,
    "json_depth": MAX_DEPTH,
    "json_values": MAX_VALUES,
    "id_characters": MAX_ID,
    "messages": MAX_MESSAGES,
    "parts_of_a_message": MAX_PARTS,
    "calls_of_a_message": MAX_CALLS,
    "characters_of_all_messages": MAX_TEXT,
    "media_of_a_turn": MAX_PICTURES,
    "media_bytes_of_a_turn": MAX_PICTURES_BYTES,
    "details_bytes_of_a_call": MAX_DETAILS_BYTES,
    "values_of_a_declared_schema": SCHEMA_VALUES,
    "values_of_all_declared_tools": TOOLS_VALUES,
}
DESCRIPTION = """\
This API serves the same agent, sessions, files and permissions that the notebook uses.

**Who may call.** A person, with the token of the server as `Authorization: Bearer ...` or `x-api-key: ...`, or in the \
browser with a cookie and its XSRF token; the kernel of a notebook with its own credential, for the sessions of that \
notebook; and a program with a token that `agent-kernel token new` created, for the routes that the token's scopes \
allow. `x-action` of an operation is the action on `agent` that the server's authorizer must allow: read, write or \
execute.

**Errors.** Every error has a JSON body in the format that the operation names. It contains the id of the request, \
which is also in the header `X-Request-ID` and in the log of the server. A method that a path does not support is \
answered with 405 and the header `Allow`, an unknown path with 404.

**Requests.** Bodies are JSON in UTF-8; numbers must be finite, and an object must not repeat a key. HEAD is answered \
like GET, without the body. The limits are in `x-limits`. A request with more than `body_bytes` bytes is answered with \
413; uploads of files have a limit of their own.
"""


@dataclass(frozen=True, slots=True)
class RouteMethod:
    """One HTTP method of one path, and the handler's method ``run`` that implements it. ``groups`` are the patterns of
    the path's variable parts, and ``names`` the names of these parts."""

    path: str
    groups: tuple[str, ...]
    method: str
    handler: type[Any]
    run: Any

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.run).parameters)[1 : len(self.groups) + 1]

    @property
    def template(self) -> str:
        names = iter(self.names)
        return GROUP.sub(lambda _: f"{{{next(names)}}}", self.path)

    @property
    def id(self) -> str:
        """The value of ``operationId`` in the document."""
        return f"{self.method}_{re.sub(r'[^a-z0-9]+', '_', self.template.lower()).strip('_')}"

    @property
    def tag(self) -> str:
        return self.path.split("/")[1].partition(".")[0]

    @property
    def operation(self) -> Operation | None:
        return operation_of(self.run)


def verbs(routes: Sequence[tuple[str, type[Any]]], prefix: str) -> Iterator[RouteMethod]:
    """Return every method of every route, in the order of the routes."""
    for route, handler in routes:
        path = route.removeprefix(prefix)
        for method in list_verbs(handler):
            yield RouteMethod(path, tuple(GROUP.findall(path)), method, handler, getattr(handler, method))


def document(routes: Sequence[tuple[str, type[Any]]], prefix: str, version: str, url: str) -> dict[str, Any]:
    """Return the document. ``url`` is the address of the routes, including ``prefix``. The first call takes about a
    second, because it imports all dialects. Raises LookupError for a method without a description."""
    result = Document(Schemas())
    methods = list(verbs(routes, prefix))
    for verb in methods:
        result.gather(verb)
    result.schemas.close()
    for verb in methods:
        result.add(verb)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-kernel",
            "version": version,
            "summary": "Agents, sessions, files and permissions of a Jupyter server.",
            "description": DESCRIPTION,
        },
        "servers": [{"url": url}],
        "tags": [{"name": tag} for tag in dict.fromkeys(verb.tag for verb in methods)],
        "paths": result.paths,
        "components": {"schemas": result.schemas.definitions, "securitySchemes": dict(SECURITY)},
        "x-limits": dict(LIMITS),
    }


@dataclass(slots=True)
class Document:
    """Builds the document. It collects all types first, so that each gets one name; then the paths refer to these
    names."""

    schemas: Schemas
    paths: dict[str, dict[str, Any]] = field(default_factory=dict)

    def gather(self, verb: RouteMethod) -> None:
        operation = _operation_of(verb)
        if operation.body is not None and not isinstance(operation.body, Raw):
            self.schemas.want(operation.body, in_request=True)
        for reply in (operation.reply, *operation.also.values(), *operation.streams):
            if reply is not None and not isinstance(reply, Raw):
                self.schemas.want(resolve_type(reply))
        for parameter in operation.query:
            self.schemas.want(parameter.kind, in_request=True)
        self.schemas.want(verb.handler.error_shape)

    def add(self, verb: RouteMethod) -> None:
        operation = _operation_of(verb)
        action, kernels = getattr(verb.run, GUARD)
        summary, _, words = (inspect.getdoc(verb.run) or "").partition("\n\n")
        entry: dict[str, Any] = {
            "operationId": verb.id,
            "summary": " ".join(summary.split()),
            "tags": [verb.tag],
            "parameters": [*self._path_parameters(verb), *map(self._parameter, operation.query)],
            "responses": self._responses(verb, operation),
            "security": [{name: []} for name in SECURITY if kernels or name != "kernel"],
            "x-action": action,
        }
        if words:
            entry["description"] = re.sub(r"``([^`]*)``", r"`\1`", words)
        if operation.conditions:
            entry["x-conditions"] = operation.conditions
        if operation.body is not None:
            entry["requestBody"] = self._body(operation.body)
        example = examples().get(verb.id, {})
        _show(entry, example)
        entry["x-codeSamples"] = [{"lang": "Shell", "source": _command(verb, entry, example)}]
        self.paths.setdefault(verb.template, {})[verb.method] = entry

    def _path_parameters(self, verb: RouteMethod) -> list[dict[str, Any]]:
        return [
            {"name": name, "in": "path", "required": True, "schema": _group_parameter(group)}
            for name, group in zip(verb.names, verb.groups, strict=True)
        ]

    def _parameter(self, parameter: Parameter) -> dict[str, Any]:
        return {
            "name": parameter.name,
            "in": parameter.place,
            "description": parameter.says,
            "required": parameter.required,
            "schema": self.schemas.of(parameter.kind, in_request=True),
        }

    def _body(self, body: Any) -> dict[str, Any]:
        if isinstance(body, Raw):
            return {"required": bool(body.schema.get("required")), "content": _content(body)}
        schema = self.schemas.of(body, in_request=True)
        return {"required": not self.schemas.accepts_nothing(body), "content": {JSON: {"schema": schema}}}

    def _responses(self, verb: RouteMethod, operation: Operation) -> dict[str, Any]:
        replies = {operation.status: operation.reply, **operation.also}
        responses = {str(status): self._response(status, reply) for status, reply in replies.items()}
        if operation.streams:
            kinds = [self.schemas.of(resolve_type(kind)) for kind in operation.streams]
            schema = _event(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
            responses[str(operation.status)].setdefault("content", {})[EVENT_STREAM] = {"schema": schema}
        beyond = OF_BODIES if operation.body is not None else ()
        refusal = self.schemas.of(verb.handler.error_shape)
        for status in sorted({*ALWAYS, *beyond, *operation.errors}):
            responses[str(status)] = {"description": _phrase(status), "content": {JSON: {"schema": refusal}}}
        return responses

    def _response(self, status: int, reply: Any) -> dict[str, Any]:
        described = {"description": _phrase(status)}
        if reply is None:
            return described
        if isinstance(reply, Raw):
            return {**described, "content": _content(reply)}
        return {**described, "content": {JSON: {"schema": self.schemas.of(resolve_type(reply))}}}


def resolve_type(reply: Any) -> Any:
    """Return the type, or import the type that ``package.module:Name`` names. Types of OpenAI's and Anthropic's
    packages are described as any object if the packages are not installed; the responses of the server are the same."""
    if not isinstance(reply, str):
        return reply
    try:
        return pkgutil.resolve_name(reply)
    except ModuleNotFoundError:
        return dict[str, Any]


def _operation_of(verb: RouteMethod) -> Operation:
    operation = verb.operation
    if operation is None:
        raise LookupError(f"{verb.method.upper()} {verb.template} has no description: add an operation(...).")
    return operation


def _show(entry: dict[str, Any], example: Mapping[str, Any]) -> None:
    """Add the example to the request body and the response of the operation ``entry``."""
    body = entry.get("requestBody", {}).get("content", {})
    if example.get("request") is not None and body:
        kind = next(iter(body))
        text = body[kind].get("schema", {}).get("type") == "string"
        sent = json.dumps(example["request"]) if text else example["request"]
        body[kind] = {**body[kind], "example": sent}
    replies = entry["responses"].get(str(example.get("status")), {}).get("content", {})
    if example.get("reply") is not None and replies:
        kind = JSON if JSON in replies else next(iter(replies))
        reply = example["reply"]
        replies[kind] = {**replies[kind], "example": {"data": json.dumps(reply)} if kind == EVENT_STREAM else reply}


def _event(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of one server-sent event whose ``data`` is JSON, in the notation of OpenAPI 3.2 for streams."""
    text = {"type": "string"}
    schema = {**text, "contentMediaType": JSON, "contentSchema": data}
    return {"type": "object", "properties": {"event": text, "id": text, "data": schema}, "required": ["data"]}


def _command(verb: RouteMethod, entry: Mapping[str, Any], example: Mapping[str, Any]) -> str:
    """Return the request as a shell command; ``$URL`` is the address of the routes."""
    parts = ["curl", '-H "Authorization: Bearer $TOKEN"']
    if verb.method != "get":
        parts.append(f"-X {verb.method.upper()}")
    if example.get("request") is not None and JSON in entry.get("requestBody", {}).get("content", {}):
        parts.append(f"--json {shlex.quote(json.dumps(example['request'], ensure_ascii=False))}")
    return " ".join([*parts, f'"$URL{verb.template.replace("{", "$").replace("}", "")}"'])


def _content(raw: Raw) -> dict[str, Any]:
    return {media: {"schema": dict(raw.schema)} if raw.schema else {} for media in raw.media}


def _group_parameter(group: str) -> dict[str, Any]:
    if group in ("([^/]+)", "(.+)"):
        return dict(ID if group == "([^/]+)" else NAME)
    return {"type": "string", "pattern": f"^{group[1:-1]}$"}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase


@functools.cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the examples by ``operationId``: the ``request`` that was sent, the ``status`` and the ``reply``, which is
    None if it is empty."""
    by_operation: Mapping[str, Mapping[str, Any]] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return by_operation


# Defines the limits of all routes, and the introduction of the OpenAPI document.
