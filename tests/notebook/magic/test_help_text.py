from __future__ import annotations

from collections import Counter

from agent_kernel.notebook.magic import help_text
from agent_kernel.notebook.magic.commands import HELP


def test_every_command_stands_under_one_thing_that_a_person_wants() -> None:
    grouped = Counter(name for group in help_text.GROUPS.values() for name in group)
    assert set(grouped) == set(HELP)
    assert set(grouped.values()) == {1}


def test_lines_fit_and_a_command_without_a_group_is_listed_last() -> None:
    text = help_text.format_help({**HELP, "novel": "words " * 60})
    assert max(map(len, text.splitlines())) <= help_text.WIDTH
    assert all(f"%agent {name} " in text for name in [*HELP, "novel"])
    assert text.index("More") > text.index("%agent delete")
