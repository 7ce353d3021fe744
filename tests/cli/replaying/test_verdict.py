"""Tests which answers still match: different wording is reported as information, different numbers as a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.cli.replaying.recorded_turn import RecordedTurn
from agent_kernel.cli.replaying.verdict import ReplayedTurn, ReplayVerdict, verdict
from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import SessionKey, Turn

CALL = ToolCall("c1", "python", {"code": "df.mean()"})


def messages(answer: str, output: str = "mean 41.2871\nrows 150", status: str = "success") -> tuple[Message, ...]:
    result = tool_result(CALL, output, "success")
    result = replace(result, status=status)  # type: ignore[arg-type]  # a status of the wire
    return (user("mean?"), assistant("", [CALL]), result, assistant(answer))


def turn(answer: str = "The mean is 41.3 of 150.") -> RecordedTurn:
    return RecordedTurn(Turn("t1", SessionKey("local", "s")), 1, (), messages(answer))


def by_model(answer: str, calls: tuple[Message, ...] | None = None) -> ReplayVerdict:
    now = messages(answer) if calls is None else (*calls, assistant(answer))
    return verdict(turn(), ReplayedTurn(now), model=True, tools=False)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("The mean is 41.3 of 150.", "holds"),
        ("Of 150 the mean is 41.29.", "text drifted"),
        ("The mean is 41.3.", "text drifted"),
        ("The mean is 41.3 of 150, in 2 groups.", "text drifted"),
        ("The mean is 40.1 of 150.", "numbers changed"),
        ("I cannot tell.", "numbers changed"),
    ],
)
def test_a_model_that_is_asked_again(answer: str, result: str) -> None:
    found = by_model(answer)
    assert found.result == result
    assert found.failed == (result == "numbers changed")


def test_changed_numbers_are_named_with_what_is_said_instead() -> None:
    found = by_model("The mean is 40.1 of 150.")
    assert (found.numbers, found.instead) == (("41.3",), ("40.1",))


def test_other_calls_with_the_same_numbers_are_information() -> None:
    found = by_model("The mean is 41.3 of 150.", (user("mean?"),))
    assert (found.result, found.failed, found.why) == ("tool calls differ", False, "now none")


def test_white_space_at_the_ends_of_code_is_no_other_call() -> None:
    other = replace(CALL, arguments={"code": "df.mean()  \n"})
    said = (user("mean?"), assistant("", [other]), tool_result(other, "mean 41.2871\nrows 150", "success"))
    assert by_model("The mean is 41.3 of 150.", said).result == "holds"


def by_tools(output: str, status: str = "success") -> ReplayVerdict:
    before = turn()
    return verdict(before, ReplayedTurn(messages(before.answer, output, status)), model=False, tools=True)


def test_an_output_that_has_the_numbers_holds_whatever_else_changed() -> None:
    assert by_tools("mean 41.2871\nrows 150") == replace(by_tools("mean 41.29\nrows 150.0\nat 0x7f1234"), outputs=0)
    assert by_tools("mean 41.29\nrows 150").outputs == 1


def test_an_output_without_a_number_of_the_answer_fails() -> None:
    found = by_tools("mean 40.1\nrows 150")
    assert (found.result, found.numbers, found.failed) == ("numbers changed", ("41.3",), True)


def test_code_that_fails_now_names_the_error_and_the_files_that_are_not_here() -> None:
    found = by_tools("Traceback\nFileNotFoundError: [Errno 2] No such file or directory: 'data/sales.csv'", "error")
    assert (found.result, found.files, found.failed) == ("could not run", ("data/sales.csv",), True)
    assert "FileNotFoundError" in found.why


def test_code_that_failed_then_may_fail_again() -> None:
    before = RecordedTurn(Turn("t1", SessionKey("local", "s")), 1, (), messages("It failed.", "boom", "error"))
    now = ReplayedTurn(messages("It failed.", "boom", "error"))
    assert verdict(before, now, model=False, tools=True).result == "holds"


def test_numbers_that_were_never_computed_are_told() -> None:
    before = turn("It is 41.3, up 7%.")
    found = verdict(before, ReplayedTurn(before.messages), model=False, tools=False)
    assert (found.result, found.failed, found.open) == ("not run again", False, ("7%",))
