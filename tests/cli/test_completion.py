"""Tests ``agent-kernel completion``: the script makes a real shell complete the command."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.conftest import Command


def test_bash_completes_commands_and_options(command: Command) -> None:
    script = command("completion", "bash").out
    completed = (
        'COMP_WORDS=({words} "{word}"); COMP_CWORD={at}; _shtab_agent_kernel; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    for words, word, found in (
        ("agent-kernel", "sess", "sessions"),
        ("agent-kernel sessions", "co", "copy"),
        ("agent-kernel model pull", "--for", "--force"),
    ):
        line = completed.format(words=words, word=word, at=len(words.split()))
        asked = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True)
        assert asked.stdout.split() == [found]


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh", "powershell"])
def test_other_shells_get_a_script_of_their_own(command: Command, shell: str) -> None:
    ended = command("completion", shell)
    assert (ended.status, "sessions" in ended.out) == (0, True)
