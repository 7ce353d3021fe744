"""Tests the result of a run as the model reads it, and paths that a user may allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.messages import Media, ToolCall
from agent_kernel.core.protocols import RunResult, ToolContext, Work
from agent_kernel.tools.code.sandbox_environment import (
    TEXT_CHARS,
    PathsAllowedForTurn,
    SandboxEnvironment,
    format_result,
)
from tests.tools.sandbox_stand_in import RanSandbox
from tests.turns import KEY

CALL = ToolCall("c1", "python", {"code": "1"})


class Allowing:
    """A user who allows the folder of each requested path, or none."""

    def __init__(self, *, yes: bool = True) -> None:
        self.asked: list[tuple[Path, bool]] = []
        self._yes = yes

    async def find_allowed(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        return (Path("/kept"),), (Path("/written"),)

    async def ask(self, path: Path, *, write: bool = False) -> Path | None:
        self.asked.append((path, write))
        return path.parent if self._yes else None


def context(paths: Allowing) -> ToolContext:
    return ToolContext(KEY, "t", 1, CALL, lambda body: None, paths=paths)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (RunResult("success"), "(no output)"),
        (RunResult("success", media=(Media.of("image/png", b"x"),)), "[1 figure(s) shown]"),
        (RunResult("success", media=(Media.of("application/vnd.agent-kernel.table+json", b"x"),)), "(no output)"),
        (RunResult("error", "before\n", error="ValueError: x"), "before\nValueError: x"),
    ],
)
def test_the_model_is_never_told_nothing(result: RunResult, text: str) -> None:
    assert format_result(result) == text


def test_a_long_output_leaves_the_error_whole_and_takes_what_room_is_left() -> None:
    text = format_result(RunResult("error", "o" * 90_000, "e" * 90_000, error="ValueError: the reason"))
    assert text.endswith("ValueError: the reason")
    assert TEXT_CHARS - 200 < len(text) < TEXT_CHARS + 400
    assert len(format_result(RunResult("success", "o" * 5_000))) == 5_000


def test_of_a_process_that_ended_the_last_lines_of_its_stderr_are_told() -> None:
    stderr = "\n".join(f"line {number}" for number in range(100)) + "\nchild boom\n"
    text = format_result(RunResult("error", "", stderr, error="The sandbox lost its process: exit code 7."))
    assert "child boom" in text
    assert "line 69" in text
    assert "line 68\n" not in text


@pytest.mark.parametrize(
    ("error", "denied", "asked"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/data/a'", "/data/a", [(Path("/data/a"), False)]),
        ("OSError: [Errno 30] Read-only file system: '/data/a'", "/data/a", [(Path("/data/a"), True)]),
        ("ValueError: '/data/a.csv'", "", []),
    ],
)
async def test_a_person_is_asked_for_a_path_that_code_named_and_could_not_open(
    error: str, denied: str, asked: list[tuple[Path, bool]]
) -> None:
    person = Allowing()
    sandbox = RanSandbox(RunResult("error", error=f"Traceback (most recent call last):\n{error}", denied=denied))
    ran = await SandboxEnvironment(sandbox).run(Work("1"), context(person))
    assert person.asked == asked
    assert any("run the code again" in note for note in ran.notes) == bool(asked)


async def test_what_was_allowed_once_holds_for_the_runs_that_follow_in_the_turn() -> None:
    error = "PermissionError: [Errno 13] Permission denied: '/data/a.csv'"
    sandbox = RanSandbox(RunResult("error", error=error, denied="/data/a.csv"))
    once = PathsAllowedForTurn()
    await SandboxEnvironment(sandbox, once=once).run(Work("1"), context(Allowing()))
    assert (sandbox.read, sandbox.write) == ((Path("/kept"),), (Path("/written"),))
    await SandboxEnvironment(sandbox, once=once).run(Work("1", "shell"), context(Allowing(yes=False)))
    assert sandbox.read == (Path("/kept"), Path("/data"))
    later = replace(context(Allowing(yes=False)), turn="another")
    await SandboxEnvironment(sandbox, once=once).run(Work("1"), later)
    assert [*sandbox.read] == [Path("/kept")]
