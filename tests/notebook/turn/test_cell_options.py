from __future__ import annotations

from typing import get_args

import pytest

from agent_kernel.core.settings import Effort, PythonIn
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.turn.cell_options import BY_FLAG, OPTIONS, CellOptions, parse_options, usage


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("", CellOptions()),
        ("plot it, don't -x --in y", CellOptions("plot it, don't -x --in y")),
        ("--in live plot", CellOptions("plot", where="live")),
        ("--in=sandbox", CellOptions(where="sandbox")),
        ("-s 'my id' --new go", CellOptions("go", session="my id", new=True)),
        ("-v df,cfg -m tiny", CellOptions(variables=("df", "cfg"), model="tiny")),
        ("--ask --rounds 0", CellOptions(permission="ask", rounds=0)),
        (
            "--seed 1 --temperature 0 --max-tokens 9 x",
            CellOptions("x", sampling={"seed": 1, "temperature": 0.0, "max_tokens": 9}),
        ),
        ("--image a.png --image 'my plot.png' look", CellOptions("look", images=("a.png", "my plot.png"))),
        ("- a list", CellOptions("- a list")),
    ],
)
def test_options_come_first_and_the_rest_is_the_prompt_as_it_stands(line: str, request_: CellOptions) -> None:
    assert parse_options(line) == request_


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--sed 1", "%%agent has no option --sed. Did you mean --seed?"),
        ("--nosuch", "%%agent has no option --nosuch. A prompt that starts with a dash goes on the next line."),
        ("--seed", "--seed needs a value: --seed N"),
        ("--seed x", "--seed must be a number, not 'x'."),
        ("--in nowhere", "--in must be live or draft or sandbox, not 'nowhere'."),
    ],
)
def test_a_mistake_is_named(line: str, message: str) -> None:
    with pytest.raises(AgentError) as caught:
        parse_options(line)
    assert str(caught.value).startswith(message)


def test_the_help_has_every_option() -> None:
    text = usage()
    assert all(flag in text for option in OPTIONS for flag in option.flags)


def test_the_choices_of_a_cell_are_those_of_the_settings() -> None:
    """The kernel does not load the settings, so the magic has lists of its own."""
    assert BY_FLAG["--effort"].choices == get_args(Effort)
    assert set(BY_FLAG["--in"].choices) == {place for place in get_args(PythonIn) if place}
