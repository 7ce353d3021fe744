"""Carries out the commands of clients on running turns: stopping a turn, answering its questions, running its calls. If
the turn runs on another server that shares the store, the command is sent to that server.

The server that the client called checks whether the client may send the command. The server that runs the turn accepts
commands only for its own turns, in the namespace of the caller.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import ToolOutput
from agent_kernel.permissions.approval_answer import Answer
from agent_kernel.permissions.approvals import Approvals
from agent_kernel.sessions.store.private_store import is_private
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from jupyter_ext.turns.event_publisher import EventPublisher
from jupyter_ext.turns.remote_turns import RemoteTurns
from jupyter_ext.turns.server_link import ServerQuestion
from jupyter_ext.turns.turns import LiveTurn, Turns

Json = Mapping[str, Any]


class TurnControl:
    """Carries out the commands of clients on running turns. ``publisher`` is None on a server that does not share its
    store."""

    def __init__(
        self,
        turns: Turns,
        remote_turns: RemoteTurns,
        approvals: Approvals,
        client_calls: ClientCallBroker,
        publisher: EventPublisher | None,
    ) -> None:
        self._turns = turns
        self._remote_turns = remote_turns
        self._approvals = approvals
        self._client_calls = client_calls
        self._publisher = publisher
        self._actions: Mapping[str, Callable[[LiveTurn, Json], Awaitable[Json]]] = {
            "follow": self._follow,
            "cancel": self._cancel,
            "approve": self._approve,
            "claim": self._claim,
            "decline": self._decline,
            "renew": self._renew,
            "output": self._output,
            "finish": self._finish,
        }

    async def run(self, turn: LiveTurn, action: str, body: Json) -> Json:
        """Run a command on the server where the turn runs, and return the result. Raises the errors of the parts that
        run it, InvalidRequest for an unknown action, and ServerUnreachable if the server of the turn does not answer.
        """
        if turn.owner is not None:
            return await turn.owner.command(action, body)
        if action not in self._actions:
            raise InvalidRequest(
                f"This version of agent-kernel knows no command {action[:40]!r}.",
                hint="Servers that share a store should have the same version.",
            )
        return await self._actions[action](turn, body)

    async def answer_question(self, question: ServerQuestion) -> Json | None:
        """Answer a question of another server; return None if the turn does not run here."""
        turn = self._turns.get(question.turn)
        if turn is None or turn.spec.key.namespace != question.namespace or is_private(turn.spec.key.id):
            return None
        return await self.run(turn, question.action, question.body)

    async def approve(self, namespace: str, id: str, answer: Answer) -> Answer:
        """Record the answer to a question of the permission gate, and return it, as ``Approvals.answer`` does."""
        question = await self._approvals.find(namespace, id)
        if question.outcome == "waiting" and self._turns.get(question.turn) is None:
            turn = await self._remote_turns.find(namespace, question.turn)
            if turn is not None:
                body = {"approval": id, "answer": dataclasses.asdict(answer)}
                return Answer(**await self.run(turn, "approve", body))
        return await self._approvals.answer(namespace, id, answer)

    async def finish(self, turn: LiveTurn, call: str, token: str, output: ToolOutput) -> None:
        """Store the result of a call that a client ran, as ``ClientCallBroker.finish`` does."""
        if turn.owner is None:
            self._client_calls.finish(turn.id, call, token, output)
            return
        media = [
            {"mime": medium.mime, "data": base64.b64encode(medium.data or b"").decode()} for medium in output.media
        ]
        body = {"call": call, "token": token, "text": output.text, "status": output.status, "media": media}
        await self.run(turn, "finish", {**body, "shown": output.shown, "details": output.details})

    # --------------------------------------------------------------------------------- commands on turns of this server

    async def _follow(self, turn: LiveTurn, body: Json) -> Json:
        assert self._publisher is not None, "only servers that share a store ask"
        return self._publisher.follow(turn, new=bool(body.get("new")), missed=bool(body.get("missed")))

    async def _cancel(self, turn: LiveTurn, body: Json) -> Json:
        return {"state": await self._turns.cancel(turn, body["reason"])}

    async def _approve(self, turn: LiveTurn, body: Json) -> Json:
        given = Answer(**body["answer"])
        return dataclasses.asdict(await self._approvals.answer(turn.spec.key.namespace, body["approval"], given))

    async def _claim(self, turn: LiveTurn, body: Json) -> Json:
        token, call = self._client_calls.claim(turn.id, body["call"], body["client"])
        return {"token": token, "name": call.name, "arguments": dict(call.arguments)}

    async def _decline(self, turn: LiveTurn, body: Json) -> Json:
        self._client_calls.decline(turn.id, body["call"], body["client"], body["reason"])
        return {}

    async def _renew(self, turn: LiveTurn, body: Json) -> Json:
        self._client_calls.renew(turn.id, body["call"], body["token"], body["where"], body["state"])
        return {}

    async def _output(self, turn: LiveTurn, body: Json) -> Json:
        self._client_calls.output(turn.id, body["call"], body["token"], body["stream"], body["text"])
        return {}

    async def _finish(self, turn: LiveTurn, body: Json) -> Json:
        media = tuple(Media.of(medium["mime"], base64.b64decode(medium["data"])) for medium in body["media"])
        output = ToolOutput(body["text"], body["status"], media, body["shown"], details=body["details"])
        self._client_calls.finish(turn.id, body["call"], body["token"], output)
        return {}
