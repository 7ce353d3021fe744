"""Tests data URLs, files and conversations of requests."""

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.messages import Media, Message, Text, ToolCall, assistant, tool_result, user
from jupyter_ext.api.dialects import openai_content
from jupyter_ext.turns.dialect_request import SubmittedFile

CALL = ToolCall("c1", "weather", {})


def url(data: bytes, mime: str = "image/png", more: str = "") -> str:
    return f"data:{mime}{more};base64,{base64.b64encode(data).decode()}"


@given(st.binary(min_size=1, max_size=50))
def test_data_comes_back_as_it_was(data: bytes) -> None:
    assert openai_content.decode_data_url(url(data)) == ("image/png", data)
    assert openai_content.medium(url(data)) == Media.of("image/png", data)


@pytest.mark.parametrize(
    "written", [url(b"a", "IMAGE/PNG"), url(b"a", more=";name=x.png"), url(b"a").replace("data", "DATA")]
)
def test_a_data_url_may_be_written_in_several_ways(written: str) -> None:
    assert openai_content.decode_data_url(written) == ("image/png", b"a")


@given(st.text(max_size=30) | st.text(max_size=10).map(lambda text: f"data:{text}"))
def test_whatever_is_no_data_url_is_a_mistake(text: str) -> None:
    read: tuple[str, bytes] | None = None
    with contextlib.suppress(ValueError):
        read = openai_content.decode_data_url(text)
    assert read is None or ";base64," in text.lower()


def test_data_that_is_too_large_is_not_decoded() -> None:
    with pytest.raises(ValueError, match="1 MiB"):
        openai_content.from_base64("!" * (2 << 20), 1 << 20)
    assert len(openai_content.from_base64(base64.b64encode(bytes(1 << 20)).decode(), 1 << 20)) == 1 << 20


@pytest.mark.parametrize("mime", ["text/html", "image/svg+xml", "audio/wav", ""])
def test_what_no_model_is_shown_is_no_medium(mime: str) -> None:
    with pytest.raises(ValueError, match="medium"):
        openai_content.medium(url(b"a", mime))


def test_a_link_is_what_was_fetched() -> None:
    fetched = Media.of("image/png", b"a")
    assert openai_content.medium("https://example.org/a", {"https://example.org/a": fetched}) is fetched
    with pytest.raises(ValueError, match="fetched"):
        openai_content.medium("https://example.org/a")


@pytest.mark.parametrize("text", ["http://a", "HTTPS://a"])
def test_links_are_known(text: str) -> None:
    assert openai_content.is_link(text)
    assert not openai_content.is_link(f"x{text}")


def test_a_file_is_named_or_brought() -> None:
    assert openai_content.make_submitted_file("f", None, None) == SubmittedFile(id="f")
    assert openai_content.make_submitted_file("f", "a.txt", None) == SubmittedFile(id="f")
    assert openai_content.make_submitted_file(None, "a.txt", "aGk=") == SubmittedFile(name="a.txt", data=b"hi")
    assert openai_content.make_submitted_file(None, "a.txt", url(b"hi", "text/plain")) == SubmittedFile(
        name="a.txt", mime="text/plain", data=b"hi"
    )


@pytest.mark.parametrize(
    "given", [(None, None, None), ("", "a", ""), (None, "a", None), (None, None, "aGk="), ("f", "a", "aGk=")]
)
def test_half_a_file_is_none(given: Any) -> None:
    with pytest.raises(ValueError, match="a file has"):
        openai_content.make_submitted_file(*given)


def test_results_get_the_names_of_their_functions() -> None:
    said = [user("q"), assistant("", [CALL]), Message("tool", (Text("r"),), call_id="c1", status="success")]
    assert openai_content.name_results(said, alone=False)[-1].name == "weather"


def test_a_result_needs_its_call_unless_it_comes_alone() -> None:
    result = tool_result(CALL, "r", "success")
    assert openai_content.name_results([result, user("q")], alone=True) == [result, user("q")]
    for said in (
        [result],
        [user("q"), result],
        [assistant("", [CALL]), result, result, tool_result(ToolCall("x", "f", {}), "", "success")],
    ):
        with pytest.raises(ValueError, match="must have the id of a call"):
            openai_content.name_results(said, alone=False)
    with pytest.raises(ValueError, match="must have the id of a call"):
        openai_content.name_results([user("q"), result], alone=True)


def test_many_results_are_checked_in_a_time_that_grows_with_their_number_only() -> None:
    results = [tool_result(ToolCall(f"c{n}", "f", {}), "", "success") for n in range(4_000)]
    assert len(openai_content.name_results(results, alone=True)) == 4_000
