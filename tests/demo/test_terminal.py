from __future__ import annotations

import io
from typing import Any

from demo.terminal import Terminal


def display(kind: str, text: str, display_id: str) -> dict[str, Any]:
    content = {"data": {"text/markdown": text}, "metadata": {}, "transient": {"display_id": display_id}}
    return {"msg_type": kind, "header": {"msg_id": "1"}, "content": content}


def print_messages(*messages: dict[str, Any]) -> str:
    out = io.StringIO()
    terminal = Terminal(out)
    for message in messages:
        terminal.message(message)
    return out.getvalue()


def test_a_growing_text_is_printed_once() -> None:
    assert print_messages(
        display("display_data", "The mean", "a"), display("update_display_data", "The mean is 16", "a")
    ) == ("The mean is 16")


def test_a_display_that_changed_altogether_is_printed_again() -> None:
    assert print_messages(display("display_data", "running", "a"), display("update_display_data", "done", "a")) == (
        "running\ndone"
    )


def test_lines_that_stand_in_the_update_again_are_not_repeated() -> None:
    text = print_messages(
        display("display_data", "[running]\n>>> 1 + 1", "a"),
        display("update_display_data", "[done]\n>>> 1 + 1\n2", "a"),
    )
    assert text == "[running]\n>>> 1 + 1\n[done]\n2"


def test_two_displays_do_not_run_into_each_other() -> None:
    text = print_messages(
        display("display_data", "one", "a"),
        display("display_data", "two", "b"),
        display("update_display_data", "1", "a"),
    )
    assert text == "one\ntwo\n1"


def test_a_figure_is_named_with_its_size() -> None:
    content = {"data": {"image/png": "AAAA", "text/plain": "<Figure>"}, "metadata": {}}
    assert (
        print_messages({"msg_type": "display_data", "header": {"msg_id": "1"}, "content": content})
        == "[image/png, 0.0 kB]\n"
    )


def test_an_error_is_one_line_without_colours() -> None:
    content = {"ename": "ValueError", "evalue": "no such column", "traceback": ["\x1b[31mlong\x1b[0m"]}
    assert print_messages({"msg_type": "error", "header": {"msg_id": "1"}, "content": content}) == (
        "ValueError: no such column\n"
    )
