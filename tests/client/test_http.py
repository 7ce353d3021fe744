"""Tests which requests the client retries, against a server that fails in the ways servers fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.client.client import SkillsClient
from agent_kernel.client.client_functions import upload_file
from agent_kernel.client.input_file import InputFile
from agent_kernel.client.sessions_client import SessionsClient
from agent_kernel.core.errors import (
    AgentKernelError,
    Forbidden,
    InvalidRequest,
    NotFound,
    ServerUnreachable,
    SessionBusy,
)
from tests.client.conftest import Serve
from tests.client.failing import HANG_UP, answer

OK = answer(200, {"ok": True})
WAIT = answer(429, {"error": {"code": "too_many_requests", "message": "slowly"}}, Retry_After="0")


async def test_what_only_reads_is_asked_again(serve: Serve) -> None:
    for failure in (HANG_UP, answer(502, b"<html>"), answer(503, b"", Retry_After="0"), WAIT):
        connection, failing = await serve(failure, failure, OK)
        assert await connection.call("GET", "health") == {"ok": True}
        assert len(failing.asked) == 3


async def test_what_may_have_happened_is_not_asked_again(serve: Serve) -> None:
    for failure in (HANG_UP, answer(502, b"<html>"), answer(500, b"")):
        connection, failing = await serve(failure, OK)
        with pytest.raises(AgentKernelError):
            await connection.call("POST", "turns", {})
        assert len(failing.asked) == 1


async def test_what_the_server_refused_to_begin_is_asked_again_when_it_says(serve: Serve) -> None:
    for failure in (WAIT, answer(503, b"", Retry_After="0")):
        connection, failing = await serve(failure, OK)
        assert await connection.call("POST", "turns", {}) == {"ok": True}
        assert len(failing.asked) == 2


async def test_a_repetition_that_the_server_knows_is_made_whatever_became_of_the_first(serve: Serve) -> None:
    for failure in (HANG_UP, *(answer(status, b"<html>") for status in (502, 503, 504))):
        connection, failing = await serve(failure, OK)
        assert await connection.call("POST", "turns", {}, repeatable=True) == {"ok": True}
        assert len(failing.asked) == 2


async def test_a_repetition_is_not_made_of_what_the_server_itself_refused(serve: Serve) -> None:
    connection, failing = await serve(answer(500, b""), OK)
    with pytest.raises(AgentKernelError):
        await connection.call("POST", "turns", {}, repeatable=True)
    assert len(failing.asked) == 1


async def test_a_pause_that_is_too_long_is_an_error_at_once(serve: Serve) -> None:
    connection, failing = await serve(answer(429, b"", Retry_After="3600"))
    with pytest.raises(AgentKernelError):
        await connection.call("GET", "health")
    assert len(failing.asked) == 1


async def test_tries_come_to_an_end(serve: Serve) -> None:
    connection, failing = await serve(HANG_UP)
    with pytest.raises(ServerUnreachable):
        await connection.call("GET", "health")
    assert len(failing.asked) == 5


async def test_a_mistake_of_the_caller_is_not_repeated(serve: Serve) -> None:
    connection, failing = await serve(answer(400, {"error": {"code": "invalid_request", "message": "no"}}))
    with pytest.raises(InvalidRequest, match="no"):
        await connection.call("GET", "health")
    assert len(failing.asked) == 1


async def test_an_error_is_its_class_with_its_facts_and_the_number_of_its_request(serve: Serve) -> None:
    told = {"code": "session_busy", "message": "busy", "hint": "wait", "details": {"turn": "t1"}, "request_id": "req_7"}
    connection, _ = await serve(answer(409, {"error": told}))
    with pytest.raises(SessionBusy) as caught:
        await connection.call("POST", "turns", {})
    error = caught.value
    assert (error.message, error.hint, error.details, error.request_id) == ("busy", "wait", {"turn": "t1"}, "req_7")


async def test_errors_of_others_are_told_by_their_number(serve: Serve) -> None:
    for status, kind in (
        (302, Forbidden),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (504, ServerUnreachable),
    ):
        connection, _ = await serve(answer(status, b"<html>", X_Request_ID="req_9"))
        with pytest.raises(kind) as caught:
            await connection.call("POST", "turns", {})
        assert caught.value.request_id == "req_9"


@pytest.mark.parametrize("body", [b"not json", b"[1]", b'{"error": "text"}', b'{"error": null}'])
async def test_an_answer_of_something_else_is_an_error_not_a_crash(serve: Serve, body: bytes) -> None:
    connection, _ = await serve(answer(500, body))
    with pytest.raises(AgentKernelError):
        await connection.call("GET", "health")


async def test_a_page_in_place_of_json_is_told(serve: Serve) -> None:
    connection, _ = await serve(answer(200, b"<html>log in</html>"))
    with pytest.raises(AgentKernelError, match="a body that is not a JSON object"):
        await connection.call("GET", "health")


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"[1]"])
async def test_so_it_is_for_what_is_sent_whole(serve: Serve, body: bytes, tmp_path: Path) -> None:
    connection, _ = await serve(answer(200, body))
    (tmp_path / "SKILL.md").write_text("---\nname: one\n---\n")
    for send in (
        lambda: upload_file(connection, InputFile("a.txt", b"a"), "s", "user_data"),
        lambda: SessionsClient(connection).import_document("{}"),
        lambda: SkillsClient(connection).add(tmp_path),
    ):
        with pytest.raises(AgentKernelError, match="a body that is not a JSON object"):
            await send()


async def test_the_token_is_in_the_header_and_never_in_the_path(serve: Serve) -> None:
    connection, failing = await serve(OK)
    await connection.call("GET", "sessions", query={"name": "x y", "limit": None})
    assert [line.replace("%20", "+") for line in failing.asked] == ["GET /agent/v1/sessions?name=x+y HTTP/1.1"]
