"""Tests turns in a real IPython terminal, with a server that it starts for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.notebook.alone import own_environment
from tests.notebook.terminal import SEQUENCES, Terminal
from tests.server import Json

IPYTHON = ("IPython", "--no-banner", "--simple-prompt", "--ext=agent_kernel")
HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31mred \u202eesrever **bold** and `code`\n\n- one\n- two\n"
SCRIPT: list[Json] = [
    {
        "when": "show me off",
        "text": HOSTILE + "```python\nx = 1\n\ny = 2\n```\nThe end.\n",
        "deltas": 30,
        "delay": 0.01,
    },
    {"when": "run it", "calls": [{"name": "python", "arguments": {"code": "ran = 6 * 7\nprint('it is', ran)"}}]},
    {"when": "run it", "text": "It ran."},
    {"when": "a long story", "text": "word " * 3000, "deltas": 3000, "delay": 0.02},
    {"text": "Anything.", "loop": True},
]
OUR_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[mKAhlGJ]")
"""What rich sends: colours, and the lines that it draws again."""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    directory = tmp_path_factory.mktemp("terminal")
    with Terminal(directory, IPYTHON, own_environment(directory, SCRIPT)) as terminal:
        assert "Started a server for this kernel" in terminal.run("%agent start")
        yield terminal


def test_markdown_is_drawn_and_nothing_that_a_model_writes_commands_the_terminal(terminal: Terminal) -> None:
    came = terminal.run("%agent ask show me off")
    assert "pwned" not in came
    assert "\x1b]" not in came
    assert "\x1b[2J" not in came
    assert "\x9b" not in came
    assert "\u202e" not in came
    assert not [found for found in re.findall(r"\x1b.{0,20}", came) if not OUR_SEQUENCES.match(found)]
    words = SEQUENCES.sub("", came)
    assert "bold and code" in words, "drawn, not as it was written"
    assert "**" not in words[words.rindex("bold and code") :], "of what had no end yet, the signs may have been seen"
    assert " • one" in words
    assert words.count("The end.") >= 1
    assert "tokens read" in words.replace("\r\n", " ")


def test_code_is_shown_and_asked_about_and_runs_in_this_process(terminal: Terminal) -> None:
    terminal.run("%agent in live")
    terminal.type("%agent ask run it\n")
    before = SEQUENCES.sub("", terminal.until("never: "))
    assert "ran = 6 * 7" in before
    assert "waiting for your answer" in before
    terminal.type("y\n")
    after = SEQUENCES.sub("", terminal.until("In ["))
    assert "it is 42" in after
    assert "done" in after
    assert "It ran." in after
    assert "43" in terminal.run("ran + 1")


def test_ctrl_c_stops_the_turn_and_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.type("%agent ask a long story\n")
    terminal.until("word word")
    terminal.type("\x03")
    came = terminal.until("In [")
    words = SEQUENCES.sub("", came)
    assert "Agent: stopped; the answer so far is kept." in words
    assert "(cut short)" in words
    shown = terminal.shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l"), "the cursor is there again"
    assert "4" in terminal.run("2 + 2")


def test_a_turn_in_the_background_is_refused_with_the_reason(terminal: Terminal) -> None:
    told = " ".join(SEQUENCES.sub("", terminal.run("%agent ask --background and later")).split())
    assert "--background needs a notebook" in told
