from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent_kernel.notebook.display.render import Card, TurnSummary
from agent_kernel.notebook.display.rich_screen import RichScreen, rich_screen, split_finished
from agent_kernel.notebook.display.screen import TerminalScreen, screen_for
from agent_kernel.notebook.display.terminal_escape import PartialText, printable


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://bad\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2;0\x1b\\after", "after"),
        ("\x9b2Jafter", "after"),
        ("\x1bc reset", " reset"),
        ("a\x08\x08b\x00\x7f", "ab"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("\u202eesrever\u2069", "esrever"),
        ("half \x1b[", "half "),
        ("half \x1b]0;never ended", "half "),
    ],
)
def test_what_commands_a_terminal_is_taken_out(text: str, harmless: str) -> None:
    assert printable(text) == harmless


def test_a_sequence_that_comes_in_pieces_is_taken_out_as_well() -> None:
    text = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\r\ne\x1b"
    for size in (1, 2, 3, 5):
        growing = PartialText()
        pieces = [growing.add(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(pieces) + growing.end() == "abcd\ne"


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one", ""),
        ("one\n\ntwo", "one\n"),
        ("one\n\n", "one\n"),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n\nafter", "```\na\n\nb\n```\n"),
        ("~~~\n```\n\n~~~\n\nx", "~~~\n```\n\n~~~\n"),
    ],
)
def test_only_what_no_later_word_can_change_is_finished(text: str, done: str) -> None:
    assert split_finished(text)[0] == done
    before, after = split_finished(text)
    assert (f"{before}\n{after}" if before else after) == text


def make_screen(width: int, *, no_color: bool = False) -> tuple[RichScreen, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system="standard", no_color=no_color)
    return RichScreen(console), out


def test_a_turn_fits_a_narrow_terminal_and_is_without_colour_where_that_is_asked_for() -> None:
    screen, out = make_screen(24, no_color=True)
    card = Card("c", "python", "live", "print('a long line of code that does not fit')")
    screen.text("A paragraph that is longer than this terminal is wide.")
    screen.card(card)
    card.add("42\x1b[2J\n")
    card.close("done", 0.1)
    screen.card(card)
    screen.text("Over.")
    screen.summary(TurnSummary("t", "s", "committed", "m"))
    text = out.getvalue()
    assert "\x1b[2J" not in text
    assert "\x1b[3" not in text, "no colour"
    assert "  42" in text
    plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "A paragraph that is" in plain


def test_what_is_waited_for_is_gone_when_there_is_something_to_show() -> None:
    screen, out = make_screen(60)
    screen.status("Waiting for the model ...")
    screen.text("Here.")
    screen.flush(force=True)
    assert "\x1b[2K" in out.getvalue(), "its line was erased"
    assert out.getvalue().rstrip().endswith("Here.")


def test_an_open_block_is_read_when_it_is_drawn_and_not_for_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    now = [100.0]

    def counted(text: str) -> tuple[str, str]:
        read.append(len(text))
        return split_finished(text)

    monkeypatch.setattr("agent_kernel.notebook.display.rich_screen.split_finished", counted)
    monkeypatch.setattr("agent_kernel.notebook.display.rich_screen.time.monotonic", lambda: now[0])
    screen, out = make_screen(60, no_color=True)
    screen.text("```python\n")
    for number in range(500):
        screen.text(f"x{number} = 1\n")
    assert len(read) == 1
    now[0] += 1
    screen.text("last = 1\n")
    assert len(read) == 2
    screen.flush(force=True)
    assert all(f"x{number} = 1" in out.getvalue() for number in (0, 250, 499))
    assert "last = 1" in out.getvalue()


def test_reasoning_and_answer_stand_apart() -> None:
    screen, out = make_screen(60, no_color=True)
    screen.reasoning("hm ")
    screen.reasoning("so")
    screen.text("Answer.")
    screen.flush(force=True)
    assert "hm so" in out.getvalue().replace("\x1b[2;3m", "").replace("\x1b[0m", "")


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert rich_screen(markdown=True) is None
    screen = screen_for(object())
    assert isinstance(screen, TerminalScreen)
    card = Card("c", "python", "live", "x = 1")
    screen.text("**words**\x1b[2J")
    screen.card(card)
    card.add("out\n")
    screen.card(card)
    card.close("done")
    screen.card(card)
    screen.summary(TurnSummary("t", "s", "committed", "m"))
    assert capsys.readouterr().out.splitlines() == [
        "**words**",
        "[python in your kernel · running]",
        ">>> x = 1",
        "out",
        "[python in your kernel · done]",
        "(m (local))",
    ]


def test_the_details_of_a_line_stand_in_the_same_line_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    TerminalScreen().line("5 of 8 programs that were tried have this result.", "3 gave another result:\n7\x1b[2J\n8")
    assert capsys.readouterr().out == "5 of 8 programs that were tried have this result. 3 gave another result: 7 8\n"
    screen, written = make_screen(20)
    screen.line("5 of 8 programs that were tried have this result.", "3 gave another result:\n7\x1b[2J\n8")
    assert written.getvalue().count("\n") == 1
