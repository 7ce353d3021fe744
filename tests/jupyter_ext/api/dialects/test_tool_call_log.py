"""Tests the record of tool calls, in the format of mistral.rs."""

import base64
import io
import json
from typing import Any

import PIL.Image
import pytest

from agent_kernel.core.events import (
    ApprovalRequired,
    CallFinished,
    CallOutput,
    CallStarted,
    ContextBuilt,
    Event,
    EventNumbering,
    FileProduced,
)
from jupyter_ext.api.dialects import tool_call_log
from jupyter_ext.api.dialects.apng_frames import frames_of
from jupyter_ext.api.dialects.tool_call_log import ToolCallLog


def report(log: ToolCallLog, event: Event) -> Any:
    found = log.record(event)
    assert found is not None
    return found[1]


def report_call(name: str, arguments: dict[str, Any], *output: CallOutput, **finished: Any) -> tuple[Any, Any, Any]:
    """Return the data of the phases ``calling`` and ``complete``, and the record, of one call in the second round."""
    log, stamp = ToolCallLog(), EventNumbering("turn_1", "session_1")
    stamp(ContextBuilt(1, 0))
    stamp(ContextBuilt(1, 0))
    began = report(log, stamp(CallStarted("c1", name, arguments, "sandbox")))
    for body in output:
        log.record(stamp(body))
    end = CallFinished("c1", name, finished.pop("status", "success"), finished.pop("text", ""), 0.5, **finished)
    done = report(log, stamp(end))
    assert (began["round"], began["phase"], done["round"], done["phase"]) == (1, "calling", 1, "complete")
    (record,) = log.records
    assert (record["round"], record["name"]) == (1, name)
    return began["data"], done["data"], record


def test_python_is_told_with_its_code_output_and_pictures() -> None:
    media = ({"mime": "image/png", "data": "AAAA"}, {"mime": "image/jpeg", "data": "BBBB"}, {"mime": "image/png"})
    began, done, record = report_call(
        "python",
        {"code": "print(1)"},
        CallOutput("c1", "1"),
        CallOutput("c1", "\n"),
        CallOutput("c1", "no\n", "stderr"),
        media=media,
        details={"seconds": 0.125},
        text="1\nno",
    )
    assert began == {"tool_type": "code_execution", "code": "print(1)"}
    assert done == {
        "tool_type": "code_execution",
        "stdout": "1\n",
        "stderr": "no\n",
        "images_base64": ["AAAA"],
        "execution_time_ms": 125,
    }
    assert record["arguments"] == '{"code": "print(1)"}'
    assert record["result_content"] == "stdout: 1\n\nstderr: no\n"
    assert record["result_images_base64"] == ["AAAA"]


def test_python_that_failed_tells_the_exception() -> None:
    _, done, record = report_call(
        "python", {"code": "1/0"}, status="error", text="all", details={"exception": "ZeroDivision"}
    )
    assert done["exception"] == "ZeroDivision"
    assert record["result_content"] == "exception: ZeroDivision"


def test_python_that_said_nothing_has_what_the_model_read() -> None:
    assert report_call("python", {"code": "1"}, text="1")[2]["result_content"] == "1"


def test_the_value_of_the_last_expression_is_told_beside_what_was_printed() -> None:
    details = {"result": "21", "working_directory": "/w"}
    _, done, record = report_call(
        "python", {"code": "print(1)\n21"}, CallOutput("c1", "1\n"), text="1\n21", details=details
    )
    assert (done["result"], done["working_directory"]) == ("21", "/w")
    assert record["result_content"] == "stdout: 1\n\nresult: 21"
    assert report_call("python", {"code": "21"}, text="21", details={"result": "21"})[2]["result_content"] == "21"


def test_a_film_is_told_frame_by_frame() -> None:
    pictures = [PIL.Image.new("RGBA", (4, 3), (shade, 0, 0, 255)) for shade in (10, 120, 250)]
    moving = io.BytesIO()
    pictures[0].save(moving, "PNG", save_all=True, append_images=pictures[1:], duration=100, disposal=1)
    still = io.BytesIO()
    pictures[0].save(still, "PNG")
    media = tuple({"mime": "image/png", "data": base64.b64encode(one.getvalue()).decode()} for one in (moving, still))
    _, done, _ = report_call("python", {"code": "1"}, media=media)
    assert done["video_frame_count"] == 3
    frames = [PIL.Image.open(io.BytesIO(base64.b64decode(frame))) for frame in done["video_frames_base64"]]
    assert [frame.convert("RGBA").getpixel((3, 2)) for frame in frames] == [(s, 0, 0, 255) for s in (10, 120, 250)]
    assert "video_frames_base64" not in report_call("python", {"code": "1"}, media=media[1:])[1]


@pytest.mark.parametrize("data", [b"", b"acTL", b"\x89PNG\r\n\x1a\nacTL" + b"\xff" * 40])
def test_what_is_no_film_has_no_frames(data: bytes) -> None:
    assert frames_of(data) == []


def test_a_reset_of_python_is_code_execution_without_code() -> None:
    assert report_call("reset_python", {})[0] == {"tool_type": "code_execution"}


def test_python_that_was_denied_has_the_reason_as_exception() -> None:
    _, done, _ = report_call("python", {"code": "1"}, status="denied", text="This call did not run: policy.")
    assert done["exception"] == "This call did not run: policy."


def test_shell_is_told_with_its_commands_and_how_it_ended() -> None:
    details = {
        "status": "error",
        "commands": ["ls", "false"],
        "stdout": "a\n",
        "stderr": "",
        "exit_code": 1,
        "timed_out": False,
        "working_directory": "/w",
        "seconds": 0.1,
    }
    began, done, record = report_call("shell", {"commands": ["ls", "false"]}, status="error", details=details)
    assert began == {"tool_type": "shell", "commands": ["ls", "false"]}
    assert done == {
        "tool_type": "shell",
        "commands": ["ls", "false"],
        "stdout": "a\n",
        "exit_code": 1,
        "status": "error",
        "timed_out": False,
        "working_directory": "/w",
    }
    assert json.loads(record["result_content"]) == {
        key: done[key] for key in done if key not in ("tool_type", "commands")
    }


def test_shell_that_was_denied_says_so_on_stderr() -> None:
    _, done, _ = report_call("shell", {"commands": ["ls"]}, status="denied", text="no")
    assert done == {"tool_type": "shell", "commands": ["ls"], "stderr": "no", "status": "denied", "timed_out": False}


def test_a_search_tells_how_much_it_found_and_where() -> None:
    details = {"query": "q", "results_count": 2, "sources": ["a.org", "b.org"]}
    began, done, record = report_call("web_search", {"query": "q"}, text="long", details=details)
    assert began == {"tool_type": "web_search", "query": "q"}
    assert done == {"tool_type": "web_search", "query": "q", "results_count": 2, "sources": ["a.org", "b.org"]}
    assert (record["arguments"], record["result_content"]) == ('{"query": "q"}', "2 results\nsources: a.org, b.org")


def test_a_page_that_was_read_has_no_query() -> None:
    details = {"url": "https://a.org", "results_count": 1, "sources": ["a.org"]}
    began, done, record = report_call("fetch_page", {"url": "https://a.org"}, details=details)
    # Its address was in no event, and the record had the arguments {}.
    arguments = '{"url": "https://a.org"}'
    assert began == {"tool_type": "web_search", "arguments": arguments}
    assert (done["results_count"], done["arguments"], record["arguments"]) == (1, arguments, arguments)


def test_a_search_that_failed_has_its_words() -> None:
    _, done, record = report_call("web_search", {"query": "q"}, status="error", text="FetchFailed: no")
    assert done == {"tool_type": "web_search", "query": "q", "status": "error", "error": "FetchFailed: no"}
    assert record["result_content"] == "FetchFailed: no"


def test_other_tools_are_told_with_their_arguments_and_what_the_model_read() -> None:
    began, done, record = report_call("jira_search", {"text": "ä"}, text="found")
    assert began == {"tool_type": "custom", "arguments": '{"text": "ä"}'}
    assert done == {"tool_type": "custom", "content": "found", "arguments": '{"text": "ä"}'}
    assert (record["arguments"], record["result_content"]) == ('{"text": "ä"}', "found")


def test_what_was_surfaced_is_told_with_the_arguments_again() -> None:
    assert report_call("surface_outputs", {"outputs": []}, text="{}")[1]["arguments"] == '{"outputs": []}'


def test_arguments_that_are_no_json_are_told_as_they_were_written() -> None:
    assert report_call("x", {"_raw": "{nope"})[0]["arguments"] == "{nope"


def test_a_call_of_which_only_the_end_was_heard_is_told() -> None:
    log = ToolCallLog()
    end = CallFinished("c1", "python", "success", "1", 0.5)
    assert report(log, EventNumbering("t", "s")(end))["round"] == 0


def test_output_of_a_call_is_bounded_and_keeps_its_end() -> None:
    pieces = [CallOutput("c1", f"{n:04} " * 200) for n in range(200)]
    _, done, _ = report_call("python", {"code": "1"}, *pieces)
    assert len(done["stdout"]) == tool_call_log.OUTPUT_CHARS
    assert done["stdout"].endswith("0199 ")


@pytest.mark.parametrize(
    ("name", "kind", "source", "expected"),
    [
        ("python", "python.sandbox", "built_in", ("code_execution", "Python code")),
        ("shell", "shell", "built_in", ("shell", "Shell command")),
        ("web_search", "web", "built_in", ("web_search", "Web search")),
        ("fetch_page", "web", "built_in", ("web_search", "Web page extraction")),
        ("read_file", "files.read", "built_in", ("file", "File access")),
        ("python", "path", "built_in", ("file", "Python code")),
        ("mine", "function.effects", "user", ("custom", "mine")),
        ("jira", "mcp", "mcp", ("custom", "jira")),
        ("theirs", "dispatch", "external", ("external", "theirs")),
    ],
)
def test_a_question_names_what_kind_of_tool_it_is_about(
    name: str, kind: str, source: str, expected: tuple[str, str]
) -> None:
    label = "File access" if name == "read_file" else ""
    asked = ApprovalRequired("appr_1", "c1", name, kind, "sandbox", "", {}, source, label)
    tool = tool_call_log.approval(EventNumbering("t", "s")(asked), asked)["tool"]
    assert (tool["source"], tool["kind"], tool["label"]) == (source, *expected)


def test_what_an_answer_holds_is_bounded_and_later_files_are_named_only() -> None:
    log, stamp, large = ToolCallLog(), EventNumbering("t", "s"), "x" * (5 << 20)
    for number in range(3):
        report(log, stamp(FileProduced("", {"id": f"file_{number}", "name": "a.txt", "text": large})))
    assert [(file["id"], "text" in file) for file in log.files.values()] == [
        ("file_0", True),
        ("file_1", False),
        ("file_2", False),
    ]
    end = CallFinished("c1", "python", "success", "", 0.5, ({"mime": "image/png", "data": large},))
    assert report(log, EventNumbering("t", "s")(end))["data"]["images_base64"] == [large]
    assert "result_images_base64" not in log.records[0]
