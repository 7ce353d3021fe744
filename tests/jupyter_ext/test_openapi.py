"""Tests that the OpenAPI document describes every route, and nothing else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent_kernel.core.events import EVENT_TYPES, Event, TextDelta
from jupyter_ext.api.http.cross_origin import VERBS
from jupyter_ext.api.http.json_body import MAX_BODY
from jupyter_ext.api.openapi.document import EXAMPLES, document, verbs
from jupyter_ext.api.openapi.handler import STYLE, OpenApiHandler, page
from jupyter_ext.api.openapi.json_schemas import PUBLISHED, PUBLISHED_OF_MODULE
from jupyter_ext.api.routes import PREFIX, routes
from tests.jupyter_ext import record_panel_types

Json = dict[str, Any]
DIALECTS = {
    **{group: {"OpenAIError"} for group in ("chat", "responses", "conversations")},
    "messages": {"AnthropicError"},
}
OTHERS = {
    "mcp": {"Error", "RpcError"},
    "models": {"Error", "ModelError", "AnthropicError"},
    "files": {"ModelError", "AnthropicError"},
    "containers": {"ModelError", "AnthropicError"},
    "skills": {"ModelError", "AnthropicError"},
    "agent": {"Error", "ApprovalError"},
}


@pytest.fixture(scope="module")
def told() -> Json:
    return OpenApiHandler.document("/base/")


def operations(told: Json) -> list[tuple[str, str, Json]]:
    return [(path, method, entry) for path, found in told["paths"].items() for method, entry in found.items()]


def test_every_verb_of_every_route_is_described() -> None:
    silent = [f"{verb.method} {verb.path}" for verb in verbs(routes(), PREFIX) if verb.operation is None]
    assert silent == []


def test_every_verb_that_a_handler_has_is_guarded_and_so_in_the_document(told: Json) -> None:
    found = {(path, method) for path, method, _ in operations(told)}

    def own(handler: type[Any]) -> set[str]:
        return {name for kind in handler.__mro__ if kind.__module__.startswith("jupyter_ext") for name in vars(kind)}

    served = {(verb, route) for route, handler in routes() for verb in VERBS if verb in own(handler)}
    assert len(found) == len(served), "a path has a name of its own"


def test_each_operation_has_a_name_of_its_own_and_says_what_it_is(told: Json) -> None:
    entries = [entry for _, _, entry in operations(told)]
    ids = [entry["operationId"] for entry in entries]
    assert len(set(ids)) == len(ids)
    assert [entry["operationId"] for entry in entries if not re.fullmatch(r"[A-Z].*\.", entry["summary"])] == []


def test_each_group_of_a_path_is_a_parameter(told: Json) -> None:
    for path, _, entry in operations(told):
        named = [one["name"] for one in entry["parameters"] if one["in"] == "path"]
        assert named == re.findall(r"\{(\w+)\}", path)


def test_every_reference_leads_somewhere(told: Json) -> None:
    names = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(told)))
    assert names
    assert names <= set(told["components"]["schemas"])


def test_every_schema_is_one(told: Json) -> None:
    for schema in told["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def titles(value: Any, *, named: bool = False) -> Iterator[str]:
    """Yield the titles of all schemas below ``value``, which is a map of ``named`` schemas or any other part of the
    document.
    """
    if isinstance(value, list):
        for item in value:
            yield from titles(item)
    elif isinstance(value, dict):
        if not named and isinstance(value.get("title"), str):
            yield value["title"]
        for key, item in value.items():
            if named or key not in ("example", "default", "const", "enum", "info"):
                yield from titles(item, named=key == "properties" and not named)


def test_every_schema_has_a_title_of_its_own_that_is_its_name(told: Json) -> None:
    schemas = told["components"]["schemas"]
    assert [name for name, schema in schemas.items() if schema["title"] != name or not name.isidentifier()] == []
    assert len({name.lower() for name in schemas}) == len(schemas)
    assert sorted(titles(told)) == sorted(schemas), "fields have names, and no titles"


def test_a_class_or_module_that_was_renamed_keeps_the_name_of_its_schema(told: Json) -> None:
    """Generated clients have classes of these names."""
    assert {*PUBLISHED.values(), *PUBLISHED_OF_MODULE.values()} <= set(told["components"]["schemas"])


def test_every_stream_of_events_has_a_schema(told: Json) -> None:
    streams = [
        (path, content["text/event-stream"])
        for path, _, entry in operations(told)
        for reply in entry["responses"].values()
        if "text/event-stream" in (content := reply.get("content", {})) and path != "/mcp"
    ]
    assert {path for path, _ in streams} == {
        "/turns/{turn_id}/events",
        "/chat/completions",
        "/responses",
        "/responses/{id}",
        "/messages",
        "/models/{name}/pull",
        "/infill",
    }
    assert [path for path, stream in streams if "#/components/schemas/" not in json.dumps(stream["schema"])] == []


def test_an_event_of_every_kind_fits_the_schema_of_events(told: Json) -> None:
    schemas = told["components"]["schemas"]
    content = told["paths"]["/turns/{turn_id}/events"]["get"]["responses"]["200"]["content"]
    data = content["text/event-stream"]["schema"]["properties"]["data"]
    assert data["contentSchema"] == {"$ref": "#/components/schemas/TurnEvent"}
    union = schemas["TurnEvent"]
    assert union["discriminator"]["mapping"].keys() == EVENT_TYPES.keys()
    event = Event(1, "t", "s", 0, 1.0, TextDelta("hi")).to_json()
    assert fits(schemas, union, event)
    assert not fits(schemas, union, {**event, "data": {"words": "hi"}})
    assert not fits(schemas, union, {**event, "type": "no.such.event"})


def test_a_field_of_an_answer_is_required_also_if_its_class_has_a_default(told: Json) -> None:
    """The server sends every field, so a generated client need not expect that one is missing."""
    branch = told["components"]["schemas"]["Branch"]
    assert branch["required"] == list(branch["properties"])


def fits(schemas: Json, schema: Json, value: Any) -> bool:
    return Draft202012Validator({**schema, "components": {"schemas": schemas}}).is_valid(value)


def examples_of(entry: Json) -> Iterator[tuple[Json, Any]]:
    """Yield (schema, example) of the body and the responses of an operation."""
    for part in (entry.get("requestBody", {}), *entry["responses"].values()):
        for content in part.get("content", {}).values():
            if "example" in content:
                yield content.get("schema", {}), content["example"]


def test_every_operation_has_an_example_that_fits(told: Json) -> None:
    schemas = told["components"]["schemas"]
    for path, method, entry in operations(told):
        (sample,) = entry["x-codeSamples"]
        assert sample["source"].startswith("curl "), (method, path)
        for schema, example in examples_of(entry):
            assert fits(schemas, schema, example), f"{method} {path}: python -m tests.jupyter_ext.record_examples"
        assert ("example" in json.dumps(entry.get("requestBody", {}))) or not takes_json(entry), (method, path)
        assert list(examples_of(entry)) or not answers_json(entry), (method, path)


def takes_json(entry: Json) -> bool:
    return "application/json" in entry.get("requestBody", {}).get("content", {})


def answers_json(entry: Json) -> bool:
    return any(
        "application/json" in reply.get("content", {}) for status, reply in entry["responses"].items() if status < "400"
    )


def test_examples_name_no_place_of_the_machine_that_they_come_from() -> None:
    assert not re.search(r"/tmp/|/root|/var/|127\.0\.0\.1|site-packages", EXAMPLES.read_text())


def test_errors_have_one_shape_for_each_dialect(told: Json) -> None:
    for path, method, entry in operations(told):
        shapes = (DIALECTS | OTHERS).get(path.split("/")[1], {"Error"})
        refusals = {status: reply for status, reply in entry["responses"].items() if int(status) >= 400}
        assert {"400", "401", "403"} <= set(refusals), (method, path)
        for reply in refusals.values():
            refs = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(reply["content"]["application/json"])))
            assert refs
            assert refs <= shapes, (method, path)


def test_a_body_brings_the_refusals_of_bodies(told: Json) -> None:
    for _, _, entry in operations(told):
        assert ("413" in entry["responses"] and "415" in entry["responses"]) or "requestBody" not in entry


def test_a_kernel_s_credential_is_named_only_where_it_opens_something(told: Json) -> None:
    def opened_by(path: str, method: str) -> set[str]:
        return {name for scheme in told["paths"][path][method]["security"] for name in scheme}

    assert "kernel" in opened_by("/sessions", "get")
    assert "kernel" not in opened_by("/skills", "post")


def test_it_is_at_home_where_the_server_is(told: Json) -> None:
    assert told["servers"] == [{"url": "/base/agent/v1"}]
    assert told["x-limits"]["body_bytes"] == MAX_BODY


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        given = dict(attrs)
        if given.get("id"):
            assert given["id"] not in self.ids
            self.ids.add(str(given["id"]))
        if tag == "a":
            self.links.add(str(given["href"]))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_fetches_nothing_and_its_links_lead_somewhere(told: Json) -> None:
    html = page(told)
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert not tags.seen & {"script", "link", "img", "iframe"}
    assert {link[1:] for link in tags.links if link.startswith("#")} <= tags.ids
    assert {link for link in tags.links if not link.startswith("#")} == {"openapi.json"}
    assert f"<style>{STYLE}</style>" in html


def test_the_page_shows_every_operation_and_lets_no_markup_in(told: Json) -> None:
    hostile = json.loads(json.dumps(told))
    hostile["paths"]["/health"]["get"]["summary"] = "<script>alert(1)</script>"
    html = page(hostile)
    assert "<script>" not in html
    assert all(f'id="{entry["operationId"]}"' in html for _, _, entry in operations(told))


def test_it_is_whole_where_the_packages_of_other_houses_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openai.types.chat", "openai.types.responses", "anthropic.types"):
        monkeypatch.setitem(sys.modules, name, None)
    found = document(routes(), PREFIX, "0", "/base/")
    told = found["paths"]["/chat/completions"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert told["type"] == "object"


def test_the_types_of_the_panel_are_those_of_the_server() -> None:
    written = record_panel_types.FILE.read_text(encoding="utf-8")
    assert written == record_panel_types.panel_types(), "python -m tests.jupyter_ext.record_panel_types"
