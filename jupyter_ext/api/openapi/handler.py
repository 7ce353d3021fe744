"""Handlers of ``openapi.json`` and of the same document as an HTML page."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from agent_kernel.core.version import __version__
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.http.lazy_handlers import load_class
from jupyter_ext.api.openapi.document import document
from jupyter_ext.api.schemas.operation import Raw, operation

PREFIX = "/agent/v1"
STYLE = """\
:root { color-scheme: dark; --line: #2e3440; --dim: #a7b0c0; --soft: #161a22; --key: #8ab4f8; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 6rem; max-width: 64rem; background: #0d1017; color: #e6e9ef;
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h4 { font-size: .85rem; margin: 1rem 0 .25rem; color: var(--dim); text-transform: uppercase; letter-spacing: .04em; }
a { color: var(--key); }
nav { display: flex; flex-wrap: wrap; gap: .3rem .9rem; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .75rem; overflow: auto; border-radius: 6px; max-height: 32rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; background: #11151c; }
details > div { padding: 0 1rem 1rem; }
summary { cursor: pointer; padding: .5rem .75rem; }
summary:focus-visible, a:focus-visible, pre:focus-visible { outline: 2px solid var(--key); outline-offset: 2px; }
summary b { display: inline-block; min-width: 4.2rem; font: 600 12px ui-monospace, monospace; color: var(--key); }
summary span { color: var(--dim); margin-left: .6rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-top: 1px solid var(--line); }
.dim { color: var(--dim); }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
@media print { body { background: #fff; color: #000; } }
"""
STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CODE = re.compile(r"`([^`]+)`")
STRONG = re.compile(r"\*\*([^*]+)\*\*")


class OpenApiHandler(AgentHandler):
    @guard("read")
    @operation(dict[str, Any])
    async def get(self) -> None:
        """Get the OpenAPI document."""
        self.finish(await asyncio.to_thread(_document_bytes, self.base_url))

    @staticmethod
    @functools.cache
    def document(base_url: str) -> dict[str, Any]:
        """Return the document, which is built at the first call. Blocking: the first call imports all dialects."""
        return document(
            load_class("jupyter_ext.api.routes:routes")(), PREFIX, __version__, f"{base_url.rstrip('/')}{PREFIX}"
        )


class DocsHandler(AgentHandler):
    """The document as an HTML page without scripts."""

    @property
    def content_security_policy(self) -> str:
        return f"{super().content_security_policy}; style-src '{STYLE_HASH}'"

    @guard("read")
    @operation(Raw(("text/html",)))
    async def get(self) -> None:
        """Get the OpenAPI document as an HTML page."""
        self.finish(await asyncio.to_thread(_document_page, self.base_url), set_content_type="text/html; charset=utf-8")


@functools.cache
def _document_bytes(base_url: str) -> bytes:
    return json.dumps(OpenApiHandler.document(base_url), ensure_ascii=False).encode()


@functools.cache
def _document_page(base_url: str) -> str:
    return page(OpenApiHandler.document(base_url))


# Renders the document as one HTML page without scripts, which can be used with the keyboard and printed.


def page(document: Mapping[str, Any]) -> str:
    info = document["info"]
    tags = [tag["name"] for tag in document["tags"]]
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in [*tags, "schemas"])
    limits = _table(("limit", "value"), [(name, f"{value:,}") for name, value in document["x-limits"].items()])
    groups = "".join(_group(document, tag) for tag in tags)
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><header><h1>{title}</h1>"
        f'<p class="dim">{escape(info["summary"])} <a href="openapi.json">openapi.json</a></p>'
        f'<nav aria-label="Groups">{links}</nav></header><main>{_paragraphs(info["description"])}'
        f"<details><summary>Limits</summary><div>{limits}</div></details>"
        f"{groups}{_schemas(document['components']['schemas'])}</main></body></html>\n"
    )


def _group(document: Mapping[str, Any], tag: str) -> str:
    operations = "".join(
        _operation(path, method, entry)
        for path, verbs in document["paths"].items()
        for method, entry in verbs.items()
        if tag in entry["tags"]
    )
    return f'<section><h2 id="{escape(tag)}">{escape(tag)}</h2>{operations}</section>'


def _operation(path: str, method: str, entry: Mapping[str, Any]) -> str:
    parts = [f"<p>{_inline(entry['description'])}</p>"] if "description" in entry else []
    who = ", ".join(name for scheme in entry["security"] for name in scheme)
    parts.append(f'<p class="dim">Action: {escape(entry["x-action"])}. Callers: {escape(who)}.</p>')
    if "x-conditions" in entry:
        parts.append(f"<p>{_inline(entry['x-conditions'])}</p>")
    if entry["parameters"]:
        rows = [_parameter(parameter) for parameter in entry["parameters"]]
        parts.append("<h4>Parameters</h4>" + _table(("name", "in", "schema", "what"), rows))
    if body := entry.get("requestBody"):
        parts.append("<h4>Body</h4>" + "".join(_content(body["content"])))
    for status, reply in entry["responses"].items():
        shown = "".join(_content(reply.get("content", {})))
        parts.append(f"<h4>{escape(status)} {escape(reply['description'])}</h4>{shown}")
    head = f"<b>{method.upper()}</b><code>{escape(path)}</code><span>{escape(entry['summary'])}</span>"
    return (
        f'<details id="{escape(entry["operationId"])}"><summary>{head}</summary><div>{"".join(parts)}</div></details>'
    )


def _parameter(parameter: Mapping[str, Any]) -> tuple[str, str, str, str]:
    needed = "Needed. " if parameter["required"] and parameter["in"] != "path" else ""
    return (
        parameter["name"],
        parameter["in"],
        json.dumps(parameter["schema"]),
        needed + parameter.get("description", ""),
    )


def _content(content: Mapping[str, Any]) -> Iterator[str]:
    for media, held in content.items():
        schema = held.get("schema")
        yield f"<p><code>{escape(media)}</code>{'' if schema is None else ' ' + _reference(schema)}</p>"


def _reference(schema: Mapping[str, Any]) -> str:
    names = re.findall(r"#/components/schemas/([^\"]+)", json.dumps(schema))
    if names and set(schema) <= {"$ref", "anyOf", "oneOf", "discriminator"}:
        return " or ".join(f'<a href="#schema-{escape(name)}">{escape(name)}</a>' for name in dict.fromkeys(names))
    return _pre(schema)


def _schemas(schemas: Mapping[str, Any]) -> str:
    details = "".join(
        f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary><div>{_pre(schema)}</div>'
        "</details>"
        for name, schema in schemas.items()
    )
    return f'<section><h2 id="schemas">schemas</h2>{details}</section>'


def _pre(schema: Mapping[str, Any]) -> str:
    """Return a schema as an HTML block that can be scrolled with the keyboard, with links to the schemas that it refers
    to."""
    text = escape(json.dumps(schema, indent=2, ensure_ascii=False), quote=False)
    linked = re.sub(r'"#/components/schemas/([^"]+)"', r'"<a href="#schema-\1">\1</a>"', text)
    return f'<pre tabindex="0">{linked}</pre>'


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    cells = "".join(
        "<tr>"
        + "".join(
            f"<td>{f'<code>{escape(cell)}</code>' if at != len(head) - 1 else escape(cell)}</td>"
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in text.split("\n\n"))


def _inline(text: str) -> str:
    return STRONG.sub(r"<strong>\1</strong>", CODE.sub(r"<code>\1</code>", escape(text, quote=False)))
