"""Tests agent cells in grading and in CI: without server and model, only with the file beside the notebook."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from agent_kernel.core.messages import Media, Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.turn.stored_answers import read_document
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import export
from agent_kernel.sessions.store.memory import MemoryStore
from tests.narrowing import not_none

KEY = SessionKey("local", "s1")
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f0005000"
    "1ff89993d1d0000000049454e44ae426082"
)
LARGE = PNG + b"\0" * 300_000


async def _write(path: Path, turns: dict[str, list[Message]], **facts: Any) -> None:
    store = MemoryStore()
    for name, said in turns.items():
        await store.add_turn(Turn(name, KEY, model="scripted", where="sandbox", **facts), said)
    whole = not_none(await read_snapshot(store, KEY))
    written = export(whole)
    path.write_bytes(written.document)
    for name, data in written.files.items():
        (path.parent / path.stem).mkdir(exist_ok=True)
        (path.parent / path.stem / name).write_bytes(data)
    await store.aclose()


def _turns() -> dict[str, list[Message]]:
    call = ToolCall("c1", "python", {"code": "print(df.mean())"})
    pictures = [Media.of("image/png", PNG), Media.of("image/png", LARGE), Media.of("image/svg+xml", b"<svg/>")]
    return {
        "t1": [
            user("the mean of df?"),
            assistant("", [call]),
            tool_result(call, "mean 41.2871", "success", pictures),
            assistant("It is **41.3**, which is 7% more."),
        ],
        "t2": [user("again"), assistant("first again")],
        "t3": [user("again"), assistant("second again <script>alert(1)</script>")],
    }


def _write_sidecar(path: Path, turns: dict[str, list[Message]] | None = None, **facts: Any) -> None:
    asyncio.run(_write(path, _turns() if turns is None else turns, **facts))


def _ran(directory: Path, *cells: str, monkeypatch: pytest.MonkeyPatch, mode: str, **env: str) -> Any:
    """Run all cells and return the notebook, as a grader gets it. Raises CellExecutionError."""
    monkeypatch.setenv("AGENT_KERNEL_MODE", mode)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    sources = ["%load_ext agent_kernel", "df = 1", *cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, kernel_name="python3", timeout=60, resources={"metadata": {"path": directory}})
    return client.execute()


def shown_text(cell: Any) -> str:
    return "\n".join(str(output.get("data", {}).get("text/plain", output.get("text", ""))) for output in cell.outputs)


def test_a_notebook_replays_its_stored_answers_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_sidecar(tmp_path / "work.agent.json")
    notebook = _ran(
        tmp_path, "%%agent\nthe mean of {df}?", "%%agent\nagain", "%%agent again", "x = 5", monkeypatch=monkeypatch,
        mode="replay",
    )  # fmt: skip
    first, second, third, last = notebook.cells[2:]
    assert "(AGENT_KERNEL_MODE=replay): no model was asked." in shown_text(first)
    assert "It is **41.3**" in shown_text(first)
    assert "print(df.mean())" in shown_text(first)
    assert "mean 41.2871" in shown_text(first)
    kinds = [kind for output in first.outputs for kind in output.data]
    assert kinds.count("image/png") == 2
    assert "image/svg+xml" not in kinds
    assert "first again" in shown_text(second)
    assert "second again" in shown_text(third)
    assert "<script>" not in json.dumps([output.data.get("text/markdown", "") for output in third.outputs])
    assert last.outputs == []


def test_a_prompt_without_an_answer_fails_the_run_or_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_sidecar(tmp_path / "work.agent.json")
    with pytest.raises(CellExecutionError, match=r"work.agent.json has no answer to this prompt"):
        _ran(tmp_path, "%%agent\nsomething new", monkeypatch=monkeypatch, mode="replay")
    told = _ran(
        tmp_path, "%%agent\nsomething new", monkeypatch=monkeypatch, mode="replay", AGENT_KERNEL_REPLAY_MISSING="tell"
    )
    assert "has no answer to this prompt" in shown_text(told.cells[2])


def test_with_agents_off_a_cell_only_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = _ran(tmp_path, "%%agent\nanything", monkeypatch=monkeypatch, mode="off")
    assert shown_text(notebook.cells[2]) == "Agent cells are off (AGENT_KERNEL_MODE=off): no model was asked."


def test_the_answer_of_this_cell_comes_before_that_of_another_with_the_same_prompt(tmp_path: Path) -> None:
    turns = _turns()
    path = tmp_path / "work.agent.json"
    _write_sidecar(path, {"t2": turns["t2"]}, cell="cell-a")
    document = read_document(path)
    found = not_none(document.find("  again ", "cell-a", 5))
    assert found.turn == "t2"
    assert document.find("again", "cell-b", 1) == found
    assert document.find("other", "cell-a", 1) is None


def test_a_medium_that_is_not_what_it_is_named_after_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "work.agent.json"
    _write_sidecar(path)
    document = read_document(path)
    digest = Media.of("image/png", LARGE).hash
    assert document.medium(digest) == LARGE
    assert document.medium("../work.agent.json") is None
    (tmp_path / "work.agent" / digest).unlink()
    (tmp_path / "work.agent" / digest).symlink_to(path)
    assert document.medium(digest) is None


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", "null", '{"agent_kernel": 1}', '{"agent_kernel": {"items": [], "turns": [{}]}, "messages": []}',
     "[" * 100_000, '{"agent_kernel": {"items": [{"turn": "t"}], "turns": []}, "messages": [5]}'],
)  # fmt: skip
def test_a_file_that_is_no_conversation_is_a_line(tmp_path: Path, body: str) -> None:
    path = tmp_path / "work.agent.json"
    path.write_text(body)
    with pytest.raises(AgentError, match="not a conversation that this version can read"):
        read_document(path)
