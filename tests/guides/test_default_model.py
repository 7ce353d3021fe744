"""Runs every guide of ``notebooks/`` with the real default model, from top to bottom: what its cells show must be
right, or the guide says that it needs a larger model and stops.

The tests compare values that were computed or constrained, never the wording of the model.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from agent_kernel.core.api_tokens import ApiTokenStore
from agent_kernel.core.settings import Settings
from tests.notebook import notebook as notebooks
from tests.notebook.notebook import Notebook
from tests.server import TOKEN, AgentServer, free_port
from tests.test_guides import made, run
from tests.test_layers import ROOT

pytestmark = [pytest.mark.model("default"), pytest.mark.slow, pytest.mark.timeout(1800)]
CELL_S = 600
PROGRAMS: dict[str, list[str]] = {
    "openai_chat.ipynb": [
        r"agent/default",
        r"(?i)hello",
        r"tool_calls -> (?=.*4 degrees)(?=.*rain)(?=.*Oslo).*",
        r"\b7\.25\b",
        r"guide-chat .*\b29\b",
        r"404 ",
    ],
    "openai_responses.ipynb": [
        r"(?i)hello",
        r"(?m)\bcompleted$",
        r"completed (?i:hello)",
        r"squares\.csv (?s:.)*\b25\b",
    ],
    "anthropic_messages.ipynb": [
        r"(?i)hello",
        r"tool_use -> (?=.*4 degrees)(?=.*rain)(?=.*Oslo).*",
        r"\b7\.25\b",
        r"404 not_found_error",
    ],
    "python_client.ipynb": [
        r"(?i)hello",
        r"\b7\.25\b",
        r"\b40\b",
        r"asked: order \{'article': 'bolts', 'number': 10\}",
        r"\{'bolts': 50\}",
        r"Person\(name='Ada', age=36\)",
    ],
    "file_inputs.ipynb": [
        r"(?s)is 150.*total.*is 150",
        r"total\.txt txt \d+ False .*\b360\b",
        r"plot\.png",
        r"sales\.csv",
    ],
    "untrusted_users.ipynb": [
        r"'read the session': 'session_not_found'",
        r"file_not_found",
        r"forbidden",
        r"(?s)error .*(?:Permission|FileNotFound|No such file)",
    ],
}
"""Patterns that the outputs of each guide must have; a number stands for its computed value."""
LARGER = ("mcp.ipynb", "skills.ipynb")
MAGICS: dict[str, list[str]] = {
    "quickstart.ipynb": [r"\b1461\b", r"\b16\.4\d*", r"(?i)\b(?:8|august)\b", r"temp_range", r"image/png"],
    "remote_engines.ipynb": [r"(?i)work", r"\b(?:3\.7\d*|4\.3\d*)", r"remote|local"],
    "sessions.ipynb": [
        r"\b385\b",
        r"Squares of ten numbers",
        r"%agent use",
        r"(?s)branch.*main",
        r"\b10\b",
        r"squares\.md",
        r"Imported as session",
        r"guide\.agent\.json",
    ],
}
FALSE = ("Traceback (most recent call last)", "NOT REFUSED", "did not manage")
"""In no output of a guide; of the guide about strangers the first stands in what its jailed code met."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """A server with the default model. The engine "work" is this server as a remote one."""
    directory, port = tmp_path_factory.mktemp("guides"), free_port()
    engines = directory / "engines.toml"
    url = f"http://127.0.0.1:{port}/agent/v1"
    engines.write_text(f'[work]\nurl = "{url}"\nmodel = "default"\napi_key_env = "WORK_API_KEY"\n')
    env = {"AGENT_KERNEL_ENGINES": str(engines), "WORK_API_KEY": TOKEN}
    traits = {"engine": "local", "tools": "agent", "cache_dir": str(Settings.from_env().cache_dir)}
    with AgentServer(directory, traits=traits, env=env) as made_server:
        yield asyncio.run(made_server.start(port))


def environment(server: AgentServer, path: Path, where: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment for a guide with the tokens that it tells its reader to create, and those tokens."""
    tokens = made(path.read_text(), ApiTokenStore(server.directory / "data" / "tokens"))
    return {"AGENT_KERNEL_URL": server.url, "IPYTHONDIR": str(where / "ipython"), **tokens}, tokens


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_guide_shows_what_is_true(server: AgentServer, name: str, tmp_path: Path) -> None:
    path = ROOT / "notebooks" / name
    given, tokens = environment(server, path, tmp_path)

    shown = run(path, tmp_path, given, cell_s=CELL_S)

    print(shown)
    assert not [pattern for pattern in PROGRAMS[name] if not re.search(pattern, shown)], shown
    assert not [words for words in FALSE if words in shown and name != "untrusted_users.ipynb"], shown
    assert "NOT REFUSED" not in shown
    assert not [token for token in tokens.values() if token in shown]


@pytest.mark.parametrize("name", LARGER)
def test_a_guide_for_a_larger_model_says_so_at_its_top_and_stops(
    server: AgentServer, name: str, tmp_path: Path
) -> None:
    path = ROOT / "notebooks" / name
    first = nbformat.read(path, as_version=4).cells[0].source
    given, _ = environment(server, path, tmp_path)

    assert "**Model:**" in first
    with pytest.raises(CellExecutionError, match="Start it with a larger model"):
        run(path, tmp_path, given, cell_s=CELL_S)


@pytest.mark.parametrize("name", MAGICS)
async def test_a_guide_of_the_magic_shows_what_is_true(
    server: AgentServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells run in a kernel of the server, beside a copy of the guide in a directory of its own."""
    monkeypatch.setattr(notebooks, "CELL_S", float(CELL_S))
    path = ROOT / "notebooks" / name
    directory = server.root / path.stem
    directory.mkdir()
    (directory / "guide.ipynb").write_text(path.read_text())
    kernel = await server.start_kernel(f"{path.stem}/guide.ipynb")
    shown: list[str] = []
    async with Notebook(server, kernel) as notebook:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                ran = await notebook.run(cell.source, (), cell=cell.id)
                shown += [f"--- {cell.id}", ran.text, ran.all, *(ran.of("image/png") and ["image/png"]), *ran.asked]
                assert ran.status == "ok", "\n".join(shown)
                if cell.source.startswith("%%agent"):
                    async with server.client() as http:
                        content = {"type": "notebook", "content": json.loads(path.read_text())}
                        (await http.put(f"api/contents/{path.stem}/guide.ipynb", json=content)).raise_for_status()
        await notebook.shut_down()
    text = "\n".join(shown)
    print(text)
    assert not [pattern for pattern in MAGICS[name] if not re.search(pattern, text)], text
    assert not [words for words in FALSE if words in text], text


def test_every_guide_is_run_here() -> None:
    assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} == {*PROGRAMS, *LARGER, *MAGICS}
    assert len(PROGRAMS) + len(MAGICS) >= 8
