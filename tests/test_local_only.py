"""Tests ``local_only`` on a machine without network: everything that needs none works, and the rest is refused with the
reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

UNSHARE = ("unshare", "--net", "--map-root-user")
ROOT = Path(__file__).parents[1]
FAR = {"web_search": "html.duckduckgo.com", "fetch_page": "example.org"}
OFFERED = {"an MCP server": "mcp.example.org", "dispatch": "tools.example.org"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system makes no network namespace for this user")
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    ended = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "tests.no_route", str(tmp_path_factory.mktemp("no-route"))],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_a_whole_turn_works_without_a_way_out(told: dict[str, Any]) -> None:
    for way in ("local_only", "open"):
        assert told[way]["state"] == "committed"
        assert told[way]["calls"]["python"] == ["success", "42"]
        assert told[way]["calls"]["shell"][0] == "success"
        assert "42" in told[way]["calls"]["shell"][1]


@pytest.mark.parametrize("tool", FAR)
def test_a_tool_that_would_go_out_is_refused_with_the_reason(told: dict[str, Any], tool: str) -> None:
    status, text = told["local_only"]["calls"][tool]
    assert status == "error"
    assert "local_only is set" in text
    assert FAR[tool] in text


@pytest.mark.parametrize("what", OFFERED)
def test_tools_of_another_machine_are_not_offered_and_the_person_reads_why(told: dict[str, Any], what: str) -> None:
    [notice] = [notice for notice in told["local_only"]["notices"] if OFFERED[what] in notice]
    assert "local_only is set" in notice
    assert told["local_only"]["calls"]["remote"][1].startswith("There is no tool 'remote'")


def test_an_engine_of_another_machine_is_refused_with_the_reason(told: dict[str, Any]) -> None:
    assert "local_only is set: the conversation with models.example.org" in told["local_only"]["engine"]


def test_nothing_was_looked_up_and_nothing_was_connected_to(told: dict[str, Any]) -> None:
    assert told["outbound"]["tried"] == []


@pytest.mark.parametrize("tool", [*FAR, "remote"])
def test_without_the_setting_the_same_call_fails_as_a_network_fails(told: dict[str, Any], tool: str) -> None:
    status, text = told["open"]["calls"][tool]
    assert status == "error"
    assert "local_only" not in text
