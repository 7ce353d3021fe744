"""``agent-kernel chat``, with the scripted engine, the real sandbox and a real terminal."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.cli.terminal.chat_command import HELP
from agent_kernel.cli.terminal.terminal_answer import TerminalAnswer
from agent_kernel.core.events import Queued
from agent_kernel.core.session import SessionKey
from tests.cli.conftest import Command
from tests.cli.terminal.pseudo_terminal import SLOW_S, Terminal

FILE = [{"name": "python", "arguments": {"code": "open('table.csv', 'w').write('a,b')"}}]
CODE = [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]
LONG = [
    {
        "name": "python",
        "arguments": {"code": "import time\nfor n in range(900):\n    print(n * 37)\n    time.sleep(0.5)"},
    }
]
LONG_ANSWER = "The measurements of the northwestern neighbourhoods show considerably more precipitation than yesterday."
SCRIPT: list[dict[str, Any]] = [
    {"text": "", "calls": CODE, "when": "times"},
    {"text": "", "calls": FILE, "when": "table"},
    {"text": "", "calls": LONG, "when": "count"},
    {"text": "The first lines are long.", "when": "slow", "deltas": 100, "delay": 0.2, "loop": True},
    {"text": LONG_ANSWER, "when": "measurements", "deltas": 40},
    {"text": "The answer is 42.", "deltas": 4, "loop": True},
]
CHAT = (sys.executable, "-u", "-m", "agent_kernel", "chat", "-s", "talk")
KEY = SessionKey("local", "talk")


@pytest.fixture
def terminal(scripted: Command) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*options: str, **how: Any) -> Terminal:
        opened.append(Terminal(*CHAT, *options, **how))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_a_person_asks_stops_an_answer_and_asks_on(scripted: Command, terminal: Callable[..., Terminal]) -> None:
    one = terminal()
    one.wait_for("A new conversation.")
    one.type("six times seven\r")
    one.wait_for("print(6 * 7)")
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    one.type("slow\r")
    one.wait_for("The")
    one.process.send_signal(signal.SIGINT)
    one.wait_for("\nStopped.")
    one.wait_for(">")
    one.type("and now?\r")
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0
    turns = scripted.on_store(lambda store: store.turns(KEY))
    assert [turn.state for turn in turns] == ["committed", "cancelled", "committed"]
    history = scripted.data / "chat_history"
    assert "six times seven" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0

    again = terminal()
    again.wait_for("3 turns so far")
    again.type("/new\r")
    again.wait_for("A new conversation: session-")
    again.wait_for(">")
    assert again.end() == 0


def test_answers_and_help_break_between_words_in_a_narrow_terminal(terminal: Callable[..., Terminal]) -> None:
    one = terminal(columns=44, COLUMNS="44")
    one.wait_for("A new conversation. /help shows the\r\ncommands.")
    one.type("measurements\r")
    one.wait_for("The measurements of the northwestern\r\nneighbourhoods show considerably more\r\nprecipitation than")
    one.wait_for(">")
    one.type("/help\r")
    one.wait_for("/session    show its id; agent-kernel\r\n              chat -s ID continues it")
    one.wait_for(">")
    assert one.end() == 0


def test_what_a_stopped_call_had_printed_stays_readable(terminal: Callable[..., Terminal]) -> None:
    one = terminal()
    one.wait_for("A new conversation.")
    one.type("count\r")
    one.wait_for("python runs ... 1")
    one.process.send_signal(signal.SIGINT)
    one.wait_for("\n  37\r\n  74\r\n")
    one.wait_for("\nStopped.")
    one.wait_for(">")
    assert one.end() == 0


def test_a_mistyped_command_and_a_line_that_is_no_text_do_not_end_the_conversation(
    scripted: Command, terminal: Callable[..., Terminal]
) -> None:
    one = terminal()
    one.wait_for(">")
    one.type("/hlep\r")
    one.wait_for("There is no command /hlep. /help shows the commands.")
    one.wait_for(">")
    one.type("caf\udce9\r")
    one.wait_for("agent-kernel: This prompt is not valid Unicode.")
    one.wait_for(">")
    one.type("six times seven\r")
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0
    assert len(scripted.on_store(lambda store: store.turns(KEY))) == 1


@pytest.mark.parametrize(("key", "status"), [("y", "success"), ("n", "denied"), ("\x03", "denied")])
def test_a_person_decides_about_a_call(
    scripted: Command, terminal: Callable[..., Terminal], key: str, status: str
) -> None:
    one = terminal(AGENT_KERNEL_PERMISSION="ask")
    one.wait_for(">")
    one.type("six times seven\r")
    one.wait_for("python:\r\n  print(6 * 7)\r\n")
    one.wait_for("python wants to run this (sandbox).\r\n")
    one.wait_for("Run it?")
    one.type(key if key == "\x03" else f"{key}\r")
    one.wait_for(f"python: {status}")
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0


@pytest.mark.parametrize(("replies", "status"), [(("xy", "Ye"), "success"), (("x", "x", "x"), "denied")])
def test_a_reply_that_is_none_of_the_offered_ones_is_asked_for_again(
    terminal: Callable[..., Terminal], replies: tuple[str, ...], status: str
) -> None:
    one = terminal(AGENT_KERNEL_PERMISSION="ask")
    one.wait_for(">")
    one.type("six times seven\r")
    for reply in replies:
        one.wait_for("Run it?")
        one.type(f"{reply}\r")
    one.wait_for(f"python: {status}")
    one.wait_for(">")
    assert one.end() == 0


@pytest.mark.parametrize("word", ["exit", "quit", "/exit", "/quit"])
def test_the_words_that_end_other_programs_end_the_conversation(
    scripted: Command, terminal: Callable[..., Terminal], word: str
) -> None:
    one = terminal()
    one.wait_for(">")
    one.type(f"{word}\r")
    assert one.process.wait(SLOW_S) == 0
    assert scripted.on_store(lambda store: store.info(KEY)) is None


def questions(scripted: Command) -> list[str]:
    items = scripted.on_store(lambda store: store.latest(KEY))
    return [item.message.text for item in items if item.message.role == "user" and not item.message.hidden]


@pytest.mark.parametrize(
    "pasted", ["\x1b[200~how many\nrows\n\nare there?\x1b[201~\r", "how many\rrows\r\rare there?\r"]
)
def test_a_pasted_text_of_several_lines_is_one_question(
    scripted: Command, terminal: Callable[..., Terminal], pasted: str
) -> None:
    one = terminal()
    one.wait_for(">")
    one.type(pasted)
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0
    assert questions(scripted) == ["how many\nrows\n\nare there?"]


def test_a_text_that_is_pasted_while_the_agent_answers_is_one_question(
    scripted: Command, terminal: Callable[..., Terminal]
) -> None:
    one = terminal()
    one.wait_for(">")
    one.type("slow\r")
    one.wait_for("The first")
    one.type("how many\nrows\n")
    one.process.send_signal(signal.SIGINT)
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0
    assert questions(scripted) == ["slow", "how many\nrows"]


def test_a_person_types_a_question_of_several_lines(scripted: Command, terminal: Callable[..., Terminal]) -> None:
    one = terminal()
    one.wait_for(">")
    one.type("how many\x1b\r")
    one.wait_for("how many")
    one.type("rows?\r")
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0
    assert questions(scripted) == ["how many\nrows?"]


def test_files_go_with_a_question_and_one_that_is_only_named_is_pointed_out(
    scripted: Command, terminal: Callable[..., Terminal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("teas.csv", "more teas.csv", "gone.csv"):
        (tmp_path / name).write_text("a\n1\n")
    one = terminal("-f", "teas.csv")
    one.wait_for(">")
    one.type("hello\r")
    one.wait_for("The answer is 42.")
    one.type('/file "more teas.csv"\r')
    one.wait_for("more teas.csv goes with your next question.")
    one.type("/file none.csv\r")
    one.wait_for("There is no file none.csv.")
    one.type("and now?\r")
    one.wait_for("The answer is 42.")
    one.type("/file gone.csv\r")
    one.wait_for("gone.csv goes with your next question.")
    Path("gone.csv").unlink()
    one.type("and then?\r")
    one.wait_for("There is no file gone.csv.")
    one.type("and without it?\r")
    one.wait_for("The answer is 42.")
    one.type("/new\r")
    one.wait_for("A new conversation:")
    one.type("How many rows has teas.csv?\r")
    one.wait_for("The agent sees only files that you give it. To send yours, enter: /file\r\nteas.csv")
    one.wait_for("The answer is 42.")
    one.wait_for(">")
    assert one.end() == 0
    files = scripted.on_store(lambda store: store.files(KEY))
    assert sorted(file.name for file in files) == ["more teas.csv", "teas.csv"]


def test_files_of_a_conversation_are_saved(
    scripted: Command, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    one = terminal("-o", str(tmp_path / "out"))
    one.wait_for(">")
    one.type("write a table\r")
    one.wait_for("The answer is 42.")
    one.wait_for(f"Saved {tmp_path / 'out' / 'table.csv'}")
    one.wait_for(">")
    assert one.end() == 0
    assert (tmp_path / "out" / "table.csv").read_text() == "a,b"


def test_lines_of_a_pipe_are_questions_and_answers_alone_go_to_stdout(scripted: Command) -> None:
    piped = subprocess.run(CHAT, input="hello\n\n/session\nand now?", capture_output=True, text=True, check=True)
    assert piped.stdout == "The answer is 42.\n" * 2
    assert len(scripted.on_store(lambda store: store.turns(KEY))) == 2


def test_ctrl_c_ends_a_conversation_whose_questions_come_from_a_pipe(scripted: Command) -> None:
    with subprocess.Popen(CHAT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as chatting:
        assert chatting.stdin is not None
        assert chatting.stderr is not None
        chatting.stdin.write(b"six times seven\nslow\nand now?\n")
        chatting.stdin.flush()
        while b"python: success" not in chatting.stderr.readline():
            pass
        while len(scripted.on_store(lambda store: store.turns(KEY))) < 2:
            time.sleep(0.1)
        chatting.send_signal(signal.SIGINT)
        assert chatting.wait(SLOW_S) == 130
    assert [turn.state for turn in scripted.on_store(lambda store: store.turns(KEY))] == ["committed", "cancelled"]


def test_the_help_fits_into_80_columns() -> None:
    assert max(map(len, HELP.splitlines())) < 80


def test_a_pipe_says_why_a_call_was_denied_and_which_option_allows_it(
    scripted: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_PERMISSION", "ask")
    piped = subprocess.run(CHAT, input="six times seven", capture_output=True, text=True, check=True)
    assert "python was denied: it needs your permission" in piped.stderr
    assert "--allow python" in piped.stderr
    allowed = (*CHAT, "--allow", "python")
    piped = subprocess.run(allowed, input="six times seven", capture_output=True, text=True, check=True)
    assert "python: success" in piped.stderr


def test_a_status_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "40")
    shown = Screen()
    answer = TerminalAnswer(Screen(), shown, quiet=False)
    answer.show(Queued(3, "another turn of this conversation is running on this server"))
    assert len(shown.getvalue()) == 39
