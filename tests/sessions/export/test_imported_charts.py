"""Tests charts in a stranger's document: charts that would contact another server are rejected, ordinary ones are
imported.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_kernel.core.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sandbox.host.chart_validation import PLOTLY
from agent_kernel.sessions.export.import_export import copy_session, export_session, import_session, preview
from agent_kernel.sessions.export.import_sanitizer import BUNDLE
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.talk import KEY

VEGA_LITE = "application/vnd.vegalite.v5+json"
VEGA = "application/vnd.vega.v5+json"
HOST = "evil.example"
ADDRESS = f"https://{HOST}/take"
BAR = {"data": [{"type": "bar", "x": ["a"], "y": [1]}], "layout": {"title": {"text": "one"}}}
POINTS = {"mark": "point", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a", "type": "quantitative"}}}
SENDS = {"data": [], "layout": {"images": [{"source": ADDRESS}]}}
LOADS = {"mark": "point", "data": {"url": ADDRESS}}
SIGNALS = {"marks": [{"type": "image", "encode": {"enter": {"url": {"value": ADDRESS}}}}]}
PLAIN = "a figure"
HUGE = b'{"application/vnd.plotly.v1+json": {"data": [], "n": ' + b"9" * 5_000 + b', "u": "' + ADDRESS.encode() + b'"}}'
"""Python refuses to read such a number, and browsers do not."""


def body(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


async def document(mime: str, data: bytes, format: str = "agent-kernel") -> bytes:
    """Return the document of a session in which a call showed ``data``."""
    store, call = MemoryStore(), ToolCall("c", "python", {"code": "plot()"})
    await store.create(KEY, "Charts")
    result = tool_result(call, "drawn ", "success", [Media.of(mime, data)])
    await store.add_turn(Turn("t1", KEY), [user("plot it"), assistant("", [call]), result, assistant("there")])
    written = await export_session(store, KEY, format)
    await store.aclose()
    return written.document


async def come(document: bytes, *, trusted: bool = False) -> tuple[str, list[Media], str]:
    """Import the document. Return the text of the result, its media with their bytes, and the session as the store then
    exports it.
    """
    store = MemoryStore()
    made = await import_session(store, "local", document, trusted=trusted)
    _, items = await store.everything(made.session.key)
    result = next(item.message for item in items if item.message.role == "tool")
    media = [Media.of(one.mime, await store.blob(made.session.key, one.hash) or b"") for one in result.media]
    held = (await export_session(store, made.session.key)).document.decode()
    await store.aclose()
    return result.text, media, held


HOSTILE = {
    "plotly": (PLOTLY, SENDS),
    "vega-lite": (VEGA_LITE, LOADS),
    "vega": (VEGA, SIGNALS),
    "other plotly": ("application/vnd.plotly.v2+json", SENDS),
    "capitals": ("Application/Vnd.Plotly.v1+json", SENDS),
    "no JSON": (PLOTLY, ADDRESS.encode()),
    "bundle that cannot be read": (BUNDLE, HUGE),
}


@pytest.mark.parametrize("format", ["agent-kernel", "jsonl"])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_chart_that_would_ask_an_address_is_a_text_that_says_so(name: str, format: str) -> None:
    mime, chart = HOSTILE[name]
    written = await document(mime, body(chart), format)
    text, media, held = await come(written)
    assert text.startswith("drawn [A chart was left out: ")
    assert media == []
    assert HOST not in held
    assert Media.of(mime, body(chart)).hash not in held
    assert (await preview(written)).left_out == {"charts that are not safe to draw": 1}


@pytest.mark.parametrize("as_it_is", [SENDS, json.dumps(SENDS), [json.dumps(SENDS)]], ids=["object", "text", "lines"])
async def test_a_bundle_comes_without_such_a_chart(as_it_is: Any) -> None:
    bundle = {PLOTLY: as_it_is, "text/html": "<table><tr><td>1</td></tr></table>", "text/plain": PLAIN}
    text, (medium,), _ = await come(await document(BUNDLE, body(bundle)))
    found = json.loads(medium.data or b"")
    assert text == "drawn "
    assert found == {
        "text/html": bundle["text/html"],
        "text/plain": f"{PLAIN}\n[A chart was left out: it has a field 'source', which may load "
        "data from another machine.]",
    }


@pytest.mark.parametrize(("mime", "chart"), [(PLOTLY, BAR), (VEGA_LITE, POINTS)], ids=["plotly", "vega-lite"])
async def test_an_ordinary_chart_comes_in(mime: str, chart: Any) -> None:
    for kind, value in ((mime, chart), (BUNDLE, {mime: chart, "text/plain": PLAIN})):
        text, (medium,), _ = await come(await document(kind, body(value)))
        assert text == "drawn "
        assert medium.mime == kind
        assert json.loads(medium.data or b"") == value


async def test_what_is_not_drawn_as_a_chart_stays_as_it_was() -> None:
    for mime, data in ((BUNDLE, b'{"text/plain": ["a", "b"]}'), ("application/json", body(SENDS))):
        _, (medium,), _ = await come(await document(mime, data))
        assert medium == Media.of(mime, data)


async def test_a_backup_of_ones_own_is_taken_as_it_is() -> None:
    _, (medium,), _ = await come(await document(PLOTLY, body(SENDS)), trusted=True)
    assert json.loads(medium.data or b"") == SENDS


async def test_a_copy_of_a_session_keeps_its_charts() -> None:
    store = MemoryStore()
    made = await import_session(store, "local", await document(PLOTLY, body(BAR)))
    await copy_session(store, made.session.key, SessionKey("local", "copy"))
    _, items = await store.everything(SessionKey("local", "copy"))
    assert [medium.mime for item in items for medium in item.message.media] == [PLOTLY]
    await store.aclose()
