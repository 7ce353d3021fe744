"""Tests a call that this process has claimed: it is renewed, and its result is sent once, however often the connection
breaks.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agent_kernel.client import client_functions as module
from agent_kernel.client.client_functions import ClaimedCall, ClientFunctions
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import ToolOutput
from agent_kernel.tools.base.functions import tool
from tests.client.conftest import Serve
from tests.client.failing import HANG_UP, answer
from tests.waiting import until

OK = answer(200, {})
TOO_LARGE = answer(413, {"error": {"code": "too_large", "message": "A body has at most 32 MiB here."}})
GONE = answer(404, {"error": {"code": "not_found", "message": "not on offer"}})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * 4)


async def test_a_long_call_is_renewed_also_when_a_request_is_lost(serve: Serve) -> None:
    connection, failing = await serve(OK, HANG_UP, OK)
    beat = asyncio.create_task(ClaimedCall(connection, "turns/t/claims/c", "k", "s").renew(0.001))
    await until(lambda: len(failing.asked) >= 4, 60)
    beat.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beat


@pytest.mark.parametrize("failures", [0, 1, 4])
async def test_a_result_is_told_until_the_server_has_it(serve: Serve, failures: int) -> None:
    connection, failing = await serve(*[HANG_UP] * failures, OK)
    await ClaimedCall(connection, "turns/t/claims/c", "k", "s").finish(ToolOutput("done"))
    assert len(failing.asked) == failures + 1


async def test_a_result_that_is_too_large_is_told_as_that(serve: Serve) -> None:
    connection, failing = await serve(TOO_LARGE, OK)
    await ClaimedCall(connection, "turns/t/claims/c", "k", "s").finish(ToolOutput("x" * 1000))
    assert len(failing.asked) == 2
    assert "The server refused its result: A body has at most 32 MiB here." in failing.bodies[-1]


async def test_nobody_insists_on_a_turn_that_was_stopped(serve: Serve) -> None:
    connection, failing = await serve(GONE)
    await ClaimedCall(connection, "turns/t/claims/c", "k", "s").finish(ToolOutput("done"))
    assert len(failing.asked) == 1


async def test_what_is_never_taken_is_given_up(serve: Serve) -> None:
    connection, failing = await serve(TOO_LARGE)
    await ClaimedCall(connection, "turns/t/claims/c", "k", "s").finish(ToolOutput("done"))
    assert len(failing.asked) == 2


def test_the_server_is_told_what_a_function_takes_and_whether_it_changes_something() -> None:
    @tool(effects=True)
    def order(number: int) -> None:
        """Orders.

        Args:
            number: how many
        """

    [told] = ClientFunctions([order], "me").to_json()
    assert (told["name"], told["description"], told["effects"], told["parallel"]) == ("order", "Orders.", True, True)
    assert told["parameters"]["properties"]["number"] == {"type": "integer", "description": "how many"}


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        ClientFunctions([3], "me")  # type: ignore[list-item]
