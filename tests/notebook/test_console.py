"""Tests ``jupyter console`` with the kernelspec "Agent prompts (Python)": a conversation in a terminal."""

from __future__ import annotations

from pathlib import Path

from tests.notebook.alone import own_environment
from tests.notebook.terminal import SEQUENCES, Terminal
from tests.server import ROOT, Json

SCRIPT: list[Json] = [
    {"when": "slow", "text": "word " * 3000, "deltas": 3000, "delay": 0.02},
    {"text": "Fine, thank you.", "loop": True},
]
CONSOLE = ("jupyter_console", "--kernel=agent-python", "--simple-prompt")


def test_a_line_behind_the_sign_is_asked_at_once_and_everything_else_is_python(tmp_path: Path) -> None:
    """One console for all, because its kernel and the server that the kernel starts take seconds."""
    environment = {
        **own_environment(tmp_path, SCRIPT),
        "JUPYTER_PATH": str(ROOT / "packaging"),
        "PYTHONPATH": str(ROOT),
    }
    with Terminal(tmp_path, CONSOLE, environment) as terminal:
        assert "Out[1]: 42" in SEQUENCES.sub("", terminal.run("6 * 7"))
        first = SEQUENCES.sub("", terminal.run("> how are you?"))
        assert "Started a server for this kernel" in " ".join(first.split())
        assert "Fine, thank you." in first
        assert "Started" not in terminal.run("> and now?")

        refused = SEQUENCES.sub("", terminal.run("plot sales by month"))
        assert "SyntaxError" in refused
        assert "begin the cell with >" in " ".join(refused.split())

        terminal.type("> slow\n")
        terminal.until("word word")
        terminal.type("\x03")
        assert "Agent: stopped" in SEQUENCES.sub("", terminal.until("In ["))
        assert "2" in terminal.run("1 + 1")
