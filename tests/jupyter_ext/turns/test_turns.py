"""Tests the turns of a server."""

from __future__ import annotations

import contextvars
import gc
import weakref
from pathlib import Path

from agent_kernel.core.messages import Media, user
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest
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
