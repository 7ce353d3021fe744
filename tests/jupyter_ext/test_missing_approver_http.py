"""Tests requests that need an approval but have nobody to ask: each dialect refuses them with its own message and
status.
"""

from __future__ import annotations

import pytest

from tests.server import TOKEN, AgentServer, Json

SCRIPT: list[Json] = [{"text": "Hello.", "loop": True}]
TRAITS = {"permission": "ask"}
SAID = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, tuple[Json, int]] = {
    "chat/completions": ({"messages": SAID}, 422),
    "responses": ({"input": SAID}, 422),
    "messages": ({"messages": SAID, "max_tokens": 10}, 400),
}


@pytest.mark.parametrize("route", ROUTES)
def test_who_turns_tools_on_streams(server: AgentServer, route: str) -> None:
    body, status = ROUTES[route]
    with server.blocking_client({"x-api-key": TOKEN}) as http:
        refused = http.post(f"agent/v1/{route}", json={**body, "model": "agent/default"})
        assert refused.status_code == status, refused.text
        assert "needs a streamed request" in refused.json()["error"]["message"]
        streamed = http.post(f"agent/v1/{route}", json={**body, "model": "agent/default", "stream": True})
        assert (streamed.status_code, "Hello." in streamed.text) == (200, True), streamed.text
        plain = http.post(f"agent/v1/{route}", json={**body, "model": "default"})
        assert plain.status_code == 200, plain.text
