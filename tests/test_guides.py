"""Runs the guides of ``notebooks/`` that need a server and no user, from top to bottom against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from agent_kernel.core.api_tokens import ApiTokenStore
from jupyter_ext.app import AgentKernel
from tests.scripted import call, python
from tests.server import AgentServer
from tests.test_layers import ROOT
from tests.tools.mcp.conftest import SERVERS

CELL_S = 100


def rounds(when: str, *calls: dict[str, Any], then: str) -> list[dict[str, Any]]:
    return [*({"calls": [one], "when": when} for one in calls), {"text": then, "when": when}]


COMPUTED = python("import statistics\nstatistics.mean([3, 5, 8, 13])")
RATES = python("import glob\nprint(open(glob.glob('skills/*/rates.csv')[0]).read())")
MEAN = rounds("mean of 3", COMPUTED, then="It is 7.25.")
WEATHER = rounds("weather in Oslo", call("weather", city="Oslo"), then="Four degrees and rain.")
SCRIPT = [
    *MEAN * 3,
    *WEATHER * 2,
    *rounds("what is their sum", then="It is 29."),
    *rounds("squares", python("open('squares.csv', 'w').write('1\\n4\\n9\\n16\\n25\\n')"), then="Written."),
    *rounds("How many bolts", call("count", article="bolts"), then="There are 40."),
    *rounds("Order 10 more bolts", call("order", article="bolts", number=10), then="Ordered 10."),
    *rounds("tickets are open", call("tickets_unasked", n=7), then="One is."),
    *rounds("report for 100 USD", RATES, then="92 euros."),
    *rounds("highest amount", python("print(open('sales.csv').read(), open('notes.txt').read())"), then="March."),
    *rounds("into total.txt", python("open('total.txt', 'w').write('360')"), then="Done."),
    *rounds("/etc/shadow", python("open('/etc/shadow').read()"), then="Nothing to see."),
    {"text": "March.", "when": "highest amount", "loop": True},
    {"text": '{"name": "Ada", "age": 36}', "when": "36 years old", "loop": True},
    {"text": "Hello.", "loop": True},
]
TOLD: dict[str, list[str]] = {
    "openai_chat.ipynb": ["agent/default", "Hello.", "tool_calls -> Four", "7.25", "guide-chat It is 29.", "404"],
    "openai_responses.ipynb": ["Hello. | Hello.", "completed Hello.", "squares.csv 1\n4\n9"],
    "anthropic_messages.ipynb": ["Hello. end_turn", "tool_use -> Four degrees", "It is 7.25.", "404 not_found_error"],
    "python_client.ipynb": ["Hello. | Hello.", "finished 7.25", "Ordered 10. {'bolts': 50}", "Person(name='Ada'"],
    "mcp.ipynb": ["tickets_unasked", "mcp tickets_unasked", "One is.", "'list_sessions'", "Hello."],
    "skills.ipynb": ["Monthly report 1", "currency,rate", "92 euros.", "[]"],
    "file_inputs.ipynb": ["Mar,150", "short month", "total.txt txt 3 False 360", "plot.png", "March."],
    "untrusted_users.ipynb": ["'read the session': 'session_not_found'", "file_not_found", "forbidden", "error"],
}
"""Words that its cells show, by its name."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    directory = tmp_path_factory.mktemp("guides")
    config = directory / "mcp.json"
    entry = {"command": sys.executable, "args": [str(SERVERS / "plain.py"), str(directory / "mcp.log")]}
    config.write_text(json.dumps({"mcpServers": {"tickets": entry}}))
    with AgentServer(directory, SCRIPT, {"tools": "agent", "mcp_config": str(config)}) as server:
        yield asyncio.run(server.start())


def run(path: Path, where: Path, environment: dict[str, str], cell_s: float = CELL_S) -> str:
    """Run a guide and return all output of its cells. Raises the error of a cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_KERNEL_")}
    client = NotebookClient(
        notebook, timeout=cell_s, kernel_name="python3", resources={"metadata": {"path": str(where)}}
    )
    client.execute(env={**inherited, "PYTHONPATH": str(ROOT), **environment})
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    # What a cell prints comes in as many pieces as the kernel happened to send it in.
    pieces = [output.get("text") or f"{output.get('data', {}).get('text/plain', '')}\n" for output in outputs]
    return "".join(pieces)


@pytest.mark.parametrize("name", TOLD)
def test_a_guide_runs_and_shows_what_it_says(server: AgentServer, name: str, tmp_path: Path) -> None:
    """With the tokens that it tells its reader to make."""
    path = ROOT / "notebooks" / name
    tokens = made(path.read_text(), ApiTokenStore(server.directory / "data" / "tokens"))
    told = run(path, tmp_path, {"AGENT_KERNEL_URL": server.url, "IPYTHONDIR": str(tmp_path / "ipython"), **tokens})
    assert not [words for words in TOLD[name] if words not in told], told
    assert "NOT REFUSED" not in told
    assert not [token for token in tokens.values() if token in told]


def made(text: str, tokens: ApiTokenStore) -> dict[str, str]:
    """Create the tokens that a guide's text mentions. Return them by the environment variables from which the guide
    reads them.
    """
    found = {}
    for line in re.findall(r"agent-kernel token new (.*?--days \d+)", text):
        user = "".join(re.findall(r"--user (\w+)", line))
        name = f"GUIDE_TOKEN_{user.upper()}" if user else "AGENT_KERNEL_TOKEN"
        found[name] = tokens.new(re.findall(r"--scope (\w+)", line) or ["turns"], user=user)[1]
    return found


@pytest.mark.parametrize("name", TOLD)
def test_a_setting_that_a_guide_names_is_one(name: str) -> None:
    text = (ROOT / "notebooks" / name).read_text()
    named = set(re.findall(r"c\.AgentKernel\.(\w+)", text))
    assert named <= set(AgentKernel.class_trait_names())


def test_the_guides_are_all_there() -> None:
    """One for each dialect, the client, MCP, skills, files, and users that nobody trusts; those of the magic are tested
    elsewhere."""
    of_the_magic = {"quickstart.ipynb", "remote_engines.ipynb", "sessions.ipynb"}
    assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} - of_the_magic == set(TOLD)
