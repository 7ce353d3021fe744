"""Tests the turns of a server."""

from __future__ import annotations

import contextvars
import gc
import weakref
from pathlib import Path

import pytest

from agent_kernel.core.messages import Media, user
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.turns import turns
from jupyter_ext.turns.turns import TurnSpec
from tests.jupyter_ext.quotas.test_limits import Server, ended

PICTURE = Media.of("image/png", b"a picture")


class Body:
    """The handler of a request, which refers to its body."""


async def test_a_turn_that_has_ended_keeps_its_log_but_not_its_request(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        await server.end()  # starts the tasks of the server, which have the context of the first request
        handled: contextvars.ContextVar[Body] = contextvars.ContextVar("handled")
        handler = Body()
        still = weakref.ref(handler)
        handled.set(handler)
        request = TurnRequest(messages=(user("see", (PICTURE,)),))
        turn = await contextvars.copy_context().run(server.turns.start, TurnSpec(SessionKey("ada", "s"), request))
        await ended(turn)
        handled.set(Body())
        del handler, request
        gc.collect()
        assert server.turns.get(turn.id) is turn
        assert turn.log.finished is not None
        assert still() is None
        assert not turn.spec.request.messages


@pytest.mark.parametrize(("limit", "value"), [("MAX_KEPT", 3), ("MAX_KEPT_BYTES", 3_000)])
async def test_of_many_turns_that_have_ended_the_logs_of_the_last_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """The logs were limited by time alone: a server with many turns kept all of ten minutes."""
    monkeypatch.setattr(turns, limit, value)
    async with Server(tmp_path) as server:
        started = [await server.turns.start(TurnSpec(SessionKey("ada", f"s{n}"), TurnRequest("x"))) for n in range(9)]
        for turn in started:
            await ended(turn)
        kept = [turn for turn in started if server.turns.get(turn.id)]
        assert 1 <= len(kept) <= 3
        assert kept == started[-len(kept) :]
        assert started[0].log.finished is not None, "a reader that has the log reads it to its end"
