"""Tests the report on whether an engine continues answers. ``openai_api/test_servers.py`` and
``jupyter_ext/test_model_servers_http.py`` test the other features."""

from __future__ import annotations

import pytest

from agent_kernel.engines.capability_probe import Finding, Probe, missing
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.engines.scripted import ScriptedEngine
from tests.engines.openai_api.wire_server import Asked, Reply, WireServer, delta, sse, status

COUNTED = ", ".join(map(str, range(1, 21)))


async def finding_of(probe: Probe) -> Finding:
    findings = await probe.findings()
    assert "continuation" not in missing(findings)
    (finding,) = [each for each in findings if each.feature == "continuation"]
    return finding


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (COUNTED, Finding("continuation", "ok")),
        ("One, two", Finding("continuation", "lacks", "the answer goes on: 'One, two'")),
    ],
)
async def test_an_engine_continues_answers_if_it_counts_on(text: str, expected: Finding) -> None:
    assert await finding_of(Probe(ScriptedEngine([{"text": text, "loop": True}]))) == expected


@pytest.mark.parametrize(
    ("rest", "state", "words"),
    [
        (sse(delta(content=" 8, 9"), delta("stop")), "ok", "; set continues of this engine to true"),
        (sse(delta(content=COUNTED), delta("stop")), "lacks", "the answer goes on: '1, 2"),
        (status(400, {"error": {"message": "continue_final_message is not permitted"}}), "lacks", "continue_final"),
    ],
)
async def test_a_server_that_continues_answers_without_saying_so_can_be_configured(
    rest: Reply, state: str, words: str
) -> None:
    async with WireServer() as server:
        whole = sse(delta(content=COUNTED), delta("stop"))

        def reply(asked: Asked) -> Reply:
            return rest if b"continue_final_message" in asked.raw else whole

        server._reply = reply  # type: ignore[method-assign]
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=8192))
        finding = await finding_of(Probe(engine))
        await engine.aclose()
    assert (finding.state, words in finding.detail) == (state, True), finding
