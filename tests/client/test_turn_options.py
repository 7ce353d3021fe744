from __future__ import annotations

import base64
from pathlib import Path

import pytest

from agent_kernel import InputFile
from agent_kernel.client.turn_options import TurnOptions, body_of, check_options
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import user
from jupyter_ext.api.native.request_schemas import TurnBody

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "effects": False, "parallel": True}


def of(**options: object) -> dict[str, object]:
    """Return the body of a turn with these options, after the server's schema has accepted it."""
    given: TurnOptions = options  # type: ignore[assignment]
    body = body_of("hello", given, [])
    TurnBody.model_validate(body)
    return body


def test_nothing_is_sent_that_was_not_said() -> None:
    assert of() == {"prompt": "hello", "queue": True}
    assert of(busy="raise", private=True, leave_running=True, session="s", files=[]) == {
        "prompt": "hello",
        "queue": False,
    }


def test_an_option_of_each_kind_comes_to_its_place() -> None:
    body = of(
        temperature=0.0,
        stop="END",
        model="work",
        tools=[],
        context={"Date": "today"},
        outputs=["a.csv", RequestedFile("b.csv", "csv", "the rest")],
        approve=lambda approval: True,
        output=["yes", "no"],
        messages=[user("before"), {"role": "assistant", "content": "yes"}],
        max_tool_rounds=0,
    )
    assert body["sampling"] == {"temperature": 0.0, "stop": ["END"]}
    assert (body["model"], body["answers"], body["max_tool_rounds"]) == ("work", ["*"], 0)
    assert body["context"] == [{"title": "Date", "text": "today"}]
    assert body["outputs"][1] == {"name": "b.csv", "format": "csv", "description": "the rest"}  # type: ignore[index]
    assert body["output"] == {"kind": "choice", "choice": ["yes", "no"]}
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]  # type: ignore[attr-defined]


def test_no_tools_are_said_to_be_none() -> None:
    assert of(tools=[])["tools"] == []
    assert "tools" not in of(tools=None)


def test_functions_of_this_process_stay_where_the_servers_tools_are_narrowed() -> None:
    body = body_of("hello", {"tools": ["python"]}, [FUNCTION])
    assert (body["tools"], body["client_tools"]) == (["python", "add"], ["add"])
    [spec] = TurnBody.model_validate(body).request().functions
    assert (spec.where, spec.kind, spec.shared_state) == ("client", "function", False)


def test_who_reads_may_decide_without_a_callback() -> None:
    assert of(answers=True)["answers"] == ["*"]
    assert "answers" not in of(answers=False, approve=lambda approval: True)


def test_a_picture_is_known_by_its_bytes_or_its_name(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"0")
    assert of(media=[PNG])["media"] == [{"mime": "image/png", "data": base64.b64encode(PNG).decode()}]
    assert body_of("x", {"media": [path]}, [])["media"][0]["mime"] == "video/mp4"
    with pytest.raises(InvalidRequest, match="neither a picture"):
        of(media=[InputFile.from_text("words")])


def test_a_name_that_is_no_option_is_refused() -> None:
    check_options({"session": "s", "temperature": 1})
    with pytest.raises(TypeError, match="sesion"):
        check_options({"sesion": "s"})
