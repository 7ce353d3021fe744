"""``agent-kernel ask``, with the scripted engine and the real sandbox."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.core.version import __version__
from tests.cli.conftest import Command
from tests.cli.terminal.pseudo_terminal import Terminal

TWO_FIGURES = """\
import matplotlib.pyplot as plt
for n in (1, 2):
    plt.plot([n, 2])
    plt.show()"""
SAVED_FIGURE = """\
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.savefig("chart.png")
plt.show()"""
SCRIPT: list[dict[str, Any]] = [
    {"text": "", "calls": [{"name": "python", "arguments": {"code": TWO_FIGURES}}], "when": "draw"},
    {"text": "", "calls": [{"name": "python", "arguments": {"code": SAVED_FIGURE}}], "when": "chart"},
    {"text": "I look.", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}], "when": "times"},
    {
        "text": "",
        "calls": [{"name": "python", "arguments": {"code": "open('table.csv', 'w').write('a,b')"}}],
        "when": "table",
    },
    {"text": "", "calls": [{"name": "web_search", "arguments": {"query": "sparrow"}}], "when": "weigh"},
    {
        "text": "",
        "calls": [{"name": "fetch_page", "arguments": {"url": "http://127.0.0.1:8888/api/kernels"}}],
        "when": "fetch",
    },
    {"text": "The first lines are long.", "when": "slow", "deltas": 5, "delay": 5.0},
    {"text": "The answer is \x1b[31m42.", "deltas": 4, "loop": True},
]
OWN_SEARCH = "tests.tools.web.test_web_search:own_search"
TERMINAL = {"TERM": "xterm", "COLUMNS": "80"}


def test_the_closing_answer_alone_goes_to_stdout_and_what_ran_to_stderr(scripted: Command) -> None:
    ended = scripted("ask", "six times seven")
    assert (ended.status, ended.out) == (0, "The answer is \ufffd[31m42.\n")
    assert "print(6 * 7)" in ended.err
    assert re.search(r"python: success after \d+\.\d s\n  42\n", ended.err)


def test_json_is_one_object_and_nothing_else_is_printed(scripted: Command) -> None:
    ended = scripted("ask", "six times seven", "--json", "--session", "sums")
    assert ended.err == ""
    assert ended.json["text"] == "The answer is \x1b[31m42."
    assert (ended.json["state"], ended.json["session"], ended.json["model"]) == ("committed", "sums", "scripted")
    assert ended.json["usage"]["completion_tokens"] > 0
    assert ended.json["error"] is None


def test_a_session_goes_on_with_the_next_question(scripted: Command) -> None:
    for question in ("hello", "and now?"):
        assert scripted("ask", question, "-s", "talk").status == 0
    items = scripted.on_store(lambda store: store.latest(SessionKey("local", "talk")))
    assert [item.message.role for item in items] == ["user", "assistant"] * 2


def test_files_are_given_along_and_those_of_the_turn_are_saved_without_overwriting(
    scripted: Command, tmp_path: Path
) -> None:
    given, out = tmp_path / "given.csv", tmp_path / "out"
    given.write_text("a\n1\n")
    err = scripted("ask", "make a table", "-f", str(given)).err
    assert "The turn produced table.csv. To save such files, add -o DIR." in err
    assert "(text/csv" not in err, "the description that the model reads, with the file's id"
    for name in ("table.csv", "table-2.csv"):
        (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
        ended = scripted("ask", "make a table", "-o", str(out), "--json")
        assert ended.json["files"] == [str(out / name)]
        assert (out / name).read_text() == "a,b"
    missing = scripted("ask", "see", "-f", str(tmp_path / "none.csv"))
    assert (missing.status, "There is no file" in missing.err) == (1, True)
    assert scripted("ask", "see", "-f", str(tmp_path)).status == 1


def test_a_figure_that_the_code_only_shows_is_named_and_saved(scripted: Command, tmp_path: Path) -> None:
    err = scripted("ask", "draw twice").err
    assert "The turn produced figure.png, figure-2.png. To save such files, add -o DIR." in err
    assert "shown]" not in err, "a terminal shows no figure"
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    out = tmp_path / "out"
    ended = scripted("ask", "draw twice", "-o", str(out))
    assert f"Saved {out / 'figure.png'}\nSaved {out / 'figure-2.png'}" in ended.err
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in ("figure.png", "figure-2.png"))
    ended = scripted("ask", "save a chart", "-o", str(out))
    assert f"Saved {out / 'chart.png'}" in ended.err
    assert len(list(out.iterdir())) == 3, "the code has saved its figure itself"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_file_that_cannot_be_saved_is_named_and_the_answer_is_shown(
    scripted: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if mode != "xb":
            return path_open(path, mode, *arguments, **named)
        path.touch()
        return FullDisk()

    path_open = Path.open
    monkeypatch.setattr(Path, "open", opened)
    out = tmp_path / "out"
    ended = scripted("ask", "a table", "-o", str(out), *options)
    assert (ended.status, "42." in ended.out) == (1, True)
    assert f"agent-kernel: {out / 'table.csv'}: No space left on device." in ended.err
    assert list(out.iterdir()) == []


def test_a_file_that_the_question_names_and_no_option_gives_is_pointed_out(
    scripted: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teas.csv").write_text("a\n1\n")
    advice = "To send yours, add: -f teas.csv"
    assert advice in scripted("ask", "How many rows has teas.csv?").err
    assert advice not in scripted("ask", "How many rows has teas.csv?", "-f", "teas.csv").err
    assert advice not in scripted("ask", "How many rows has more.csv?").err
    assert scripted("ask", "How many rows has teas.csv?", "--json").err == ""


def test_a_model_that_does_not_exist_is_named(scripted: Command) -> None:
    ended = scripted("ask", "hello", "--model", "nonsense")
    assert (ended.status, ended.out) == (1, "")
    hint = "To see the models of this machine: agent-kernel model list"
    assert ended.err == f"agent-kernel: There is no engine or model 'nonsense' here. {hint}\n"


def test_a_terminal_shows_the_answer_as_it_is_written(scripted: Command) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agent_kernel", "ask", "six times seven"]
    done = subprocess.Popen(command, env=os.environ | TERMINAL, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    assert done.wait(60) == 0
    text = shown.decode()
    assert text.index("I look.") < text.index("print(6 * 7)") < text.index("42.")
    assert "python runs ..." in text
    assert "\x1b" not in text


def ask_in_terminal(shell: str) -> Terminal:
    return Terminal("sh", "-c", shell.replace("ask", f"{sys.executable} -m agent_kernel ask"))


@pytest.mark.parametrize("shell", ["ask 'six times seven'", "echo 6 | ask 'six times seven' > out", "ask times --json"])
@pytest.mark.parametrize(("reply", "status"), [("y", "success"), ("n", "denied")])
def test_a_person_at_a_terminal_is_asked_before_code_runs(
    scripted: Command, monkeypatch: pytest.MonkeyPatch, shell: str, reply: str, status: str
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_PERMISSION", "ask")
    monkeypatch.chdir(scripted.data.parent)
    terminal = ask_in_terminal(f"{shell} -s talk; echo ended")
    try:
        terminal.wait_for("print(6 * 7)")
        terminal.wait_for("Run it?")
        terminal.type(f"{reply}\r")
        terminal.wait_for("ended")
    finally:
        terminal.close()
    items = scripted.on_store(lambda store: store.latest(SessionKey("local", "talk")))
    assert [item.message.status for item in items if item.message.role == "tool"] == [status]


def test_without_a_terminal_a_denied_call_is_explained_and_an_option_allows_it(
    scripted: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_PERMISSION", "ask")
    denied = scripted("ask", "six times seven")
    reason = "agent-kernel: python was denied: it needs your permission, and there is no terminal to ask you."
    advice = "To allow it, add --allow python, or run the command in a terminal."
    assert f"{reason} {advice}" in denied.err
    assert "python: denied" in denied.err
    assert scripted("ask", "six times seven", "--json").err == f"{reason} {advice}\n"
    allowed = scripted("ask", "six times seven", "--allow", "python")
    assert re.search(r"python: success after \d+\.\d s\n  42\n", allowed.err)
    monkeypatch.setenv("AGENT_KERNEL_PERMISSION", "deny")
    assert "denied by policy" in scripted("ask", "six times seven", "--allow", "python").err


def test_the_web_is_searched_where_it_is_on_and_the_user_allows_it(
    scripted: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ("ask", "What does a sparrow weigh?")
    off = scripted(*question, "--allow", "web").err
    assert "There is no tool 'web_search'" in off
    assert "To turn it on, set AGENT_KERNEL_WEB=duckduckgo." in off
    monkeypatch.setenv("AGENT_KERNEL_WEB", OWN_SEARCH)
    assert "AGENT_KERNEL_WEB" not in (denied := scripted(*question)).err
    assert "web_search: denied" in denied.err
    assert "To allow it, add --allow web, or run the command in a terminal." in denied.err
    allowed = scripted(*question, "--allow", "web").err
    assert "web_search: success" in allowed
    assert "weighs about thirty-nine grams" in allowed
    fetched = scripted("ask", "fetch the kernels", "--allow", "web").err
    assert "fetch_page: error" in fetched
    assert "are not allowed" in fetched, "the addresses of this machine are refused here as in a notebook"


def test_a_person_at_a_terminal_is_asked_before_the_web_is_searched(
    scripted: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_WEB", OWN_SEARCH)
    monkeypatch.chdir(scripted.data.parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    terminal = ask_in_terminal("ask 'What does a sparrow weigh?'; echo ended")
    try:
        terminal.wait_for("Run it?")
        terminal.type("y\r")
        terminal.wait_for("web_search: success")
        terminal.wait_for("ended")
    finally:
        terminal.close()


def test_ctrl_c_ends_the_wait_for_standard_input(scripted: Command) -> None:
    terminal = ask_in_terminal("ask hello -f -")
    try:
        terminal.wait_for("reading standard input; end it with Ctrl-D.")
        time.sleep(0.5)  # until the command waits
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.wait_for("The turn was stopped.")
        terminal.process.wait(10)
    finally:
        terminal.close()


def test_stdin_is_the_question_or_a_file(scripted: Command) -> None:
    def piped(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agent_kernel", "ask", *arguments]
        return subprocess.run(command, input="six times seven", capture_output=True, text=True, check=False)

    asked = piped("-")
    assert (asked.returncode, "print(6 * 7)" in asked.stderr) == (0, True)
    given = piped("what is it?", "-f", "-", "--json")
    session = json.loads(given.stdout)["session"]
    [file] = scripted.on_store(lambda store: store.files(SessionKey("local", session)))
    assert (file.name, file.size) == ("stdin.txt", len("six times seven"))
    assert "cannot both be -" in piped("-", "-f", "-").stderr


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("caf\udce9", "This prompt is not valid Unicode."),  # as Python passes an argument that is not UTF-8
        (" \n", "The question is empty."),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_with_its_reason(
    scripted: Command, question: str, reason: str
) -> None:
    ended = scripted("ask", question)
    assert (ended.status, ended.err) == (1, f"agent-kernel: {reason}\n")
    assert scripted("sessions", "--json").json == []


def test_stdin_that_is_not_utf_8_is_refused_without_a_traceback(scripted: Command) -> None:
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "agent_kernel", "ask", "-"]
    ended = subprocess.run(command, input=b"caf\xe9", env=strict, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"agent-kernel: This prompt is not valid Unicode.\n")


def test_a_file_in_the_place_of_the_output_directory_is_an_error_before_the_turn(
    scripted: Command, tmp_path: Path
) -> None:
    (tmp_path / "out").touch()
    ended = scripted("ask", "table", "-o", str(tmp_path / "out"))
    assert (ended.status, ended.err) == (1, f"agent-kernel: {tmp_path / 'out'}: File exists.\n")
    assert scripted("sessions", "--json").json == []


@pytest.mark.skipif(sys.platform != "linux", reason="nobody can create a file in /proc, not even root")
def test_an_output_directory_that_cannot_be_written_is_an_error_before_the_turn(scripted: Command) -> None:
    ended = scripted("ask", "table", "-o", "/proc")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("agent-kernel: /proc: ")
    assert scripted("sessions", "--json").json == []


def test_a_directory_is_not_an_input_file(scripted: Command, tmp_path: Path) -> None:
    ended = scripted("ask", "six times seven", "-f", str(tmp_path))
    assert (ended.status, ended.err) == (1, f"agent-kernel: {tmp_path} is not a regular file.\n")
    assert scripted("sessions", "--json").json == [], "no empty conversation is left"


def test_a_missing_second_file_leaves_no_conversation_and_no_copy_of_the_first(
    scripted: Command, tmp_path: Path
) -> None:
    (tmp_path / "rain.csv").write_text("a,b")
    ended = scripted("ask", "hello", "-f", str(tmp_path / "rain.csv"), "-f", str(tmp_path / "none.csv"))
    assert (ended.status, ended.err) == (1, f"agent-kernel: There is no file {tmp_path / 'none.csv'}.\n")
    assert scripted("sessions", "--json").json == []
    assert [path for path in (scripted.data / "incoming").glob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("what", "is", "it"), "unrecognized arguments: is it. Put an argument that contains spaces into quotes."),
        (
            ("what", "-f", "a.csv", "b.csv"),
            "unrecognized arguments: b.csv. Put an argument that contains spaces into quotes.",
        ),
        (("what", "--bogus"), "unrecognized arguments: --bogus"),
    ],
)
def test_wrong_arguments_are_answered_with_the_usage_of_the_command(
    scripted: Command, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        scripted("ask", *arguments)
    told = capsys.readouterr().err
    assert (ended.value.code, told.startswith("usage: agent-kernel ask ")) == (2, True)
    assert reason in told


def test_ctrl_c_closes_the_turn_and_the_session_goes_on(scripted: Command) -> None:
    command = [sys.executable, "-u", "-m", "agent_kernel", "ask", "slow", "-s", "stopped"]
    ours, theirs = pty.openpty()
    asking = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert os.read(ours, 100)
    asking.send_signal(signal.SIGINT)
    _, err = asking.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    assert (asking.returncode, err) == (130, b"\nagent-kernel: The turn was stopped.\n")
    [turn] = scripted.on_store(lambda store: store.turns(SessionKey("local", "stopped")))
    assert turn.state == "cancelled"
    assert scripted("ask", "hello", "-s", "stopped").status == 0


def test_the_command_alone_shows_its_help_and_its_version(command: Command) -> None:
    bare = command()
    assert (bare.status, "ask" in bare.out, "COMMAND" in bare.out) == (0, True, True)
    done = subprocess.run(
        [sys.executable, "-m", "agent_kernel", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"agent-kernel {__version__}\n"
