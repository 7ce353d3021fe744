"""Routes that list, create, switch and drop the branches of a session, fork a session, undo a turn, and list the
versions of a turn."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from pydantic import Field

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import Branch, SessionKey, new_id
from agent_kernel.sessions.store.private_store import is_private, private_id
from agent_kernel.sessions.undo import undo
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import Body, EmptyBody, Id, SessionId
from jupyter_ext.api.native.sessions import SessionChangeHandler, session_to_json
from jupyter_ext.api.schemas import sessions as shapes
from jupyter_ext.api.schemas.operation import IF_MATCH, PLACE, SESSION, WHICH_NOTEBOOK, operation
from jupyter_ext.api.schemas.turns import Versions

BOUND = "With bind, the query names a notebook (kernel or path), unless a kernel sends the request."


class BranchBody(Body):
    """A new branch. ``before`` is the turn before which the branch ends; without it, the branch has all turns."""

    before: Id | None = None
    name: Annotated[str, Field(max_length=200)] = ""


class SwitchBody(Body):
    name: Annotated[str, Field(min_length=1, max_length=200)]


class ForkBody(Body):
    """A fork of a session. ``turns``: copy the turns up to this many committed ones, and without it all turns."""

    turns: Annotated[int, Field(ge=0)] | None = None
    id: SessionId | None = None
    bind: bool = False


class BranchesHandler(SessionChangeHandler):
    @guard("read")
    @operation(shapes.Branches, errors=(404,))
    async def get(self, session_id: str) -> None:
        """List the branches of a session."""
        session = await self.services.access.session(self.caller, session_id)
        branches = await self.services.runtime.store.branches(session.key)
        self.reply({"branches": [dataclasses.asdict(branch) for branch in branches], "revision": session.revision})

    @guard("write")
    @operation(Branch, status=201, body=BranchBody, query=(IF_MATCH,), errors=(404, 409, 507))
    async def post(self, session_id: str) -> None:
        """Create a branch and make it the current one."""
        body = self.parse(BranchBody)
        async with self.change(session_id, "branch") as key:
            branch = await self.services.runtime.store.branch(key, before=body.before, name=body.name)
        self.reply(dataclasses.asdict(branch), 201)


class CurrentBranchHandler(SessionChangeHandler):
    @guard("write")
    @operation(Branch, body=SwitchBody, query=(IF_MATCH,), errors=(404, 409))
    async def put(self, session_id: str) -> None:
        """Make a branch the current one."""
        body = self.parse(SwitchBody)
        async with self.change(session_id, "branch") as key:
            branch = await self.services.runtime.store.switch(key, body.name)
        self.reply(dataclasses.asdict(branch))


class BranchHandler(SessionChangeHandler):
    @guard("write")
    @operation(shapes.BranchDropped, query=(IF_MATCH,), errors=(404, 409))
    async def delete(self, session_id: str, name: str) -> None:
        """Drop a branch."""
        async with self.change(session_id, "branch") as key:
            await self.services.runtime.store.drop_branch(key, name)
        self.reply({"name": name, "deleted": True})


class ForkHandler(AgentHandler):
    @guard("write")
    @operation(shapes.Forked, status=201, body=ForkBody, query=PLACE, errors=(404, 409, 507), conditions=BOUND)
    async def post(self, session_id: str) -> None:
        """Copy a session to a new one.

        With ``bind``, the notebook is bound to the new session.
        """
        body, access = self.parse(ForkBody), self.services.access
        session = await access.session(self.caller, session_id)
        place = await self.find_queried_place()
        if body.bind and place is None:
            raise InvalidRequest("The request does not name the notebook for the fork.", hint=WHICH_NOTEBOOK)
        fresh_id = private_id() if is_private(session_id) else new_id("session")
        target = SessionKey(self.caller.namespace, body.id or fresh_id)
        await access.claim_id(self.caller, target.id)
        fork = await self.services.runtime.store.fork(session.key, target, body.turns)
        if body.bind and place is not None:
            await self.services.notebooks.bind(target, place)
        self.reply({**session_to_json(fork), "bound": body.bind, "source": session_id}, 201)


class UndoHandler(SessionChangeHandler):
    @guard("write")
    @operation(shapes.TakenBack, body=EmptyBody, query=(IF_MATCH,), errors=(404, 409))
    async def post(self, session_id: str) -> None:
        """Undo the newest turn.

        The turn is removed from the current branch. ``ran`` lists what the turn executed; that is not undone.
        """
        self.parse(EmptyBody)
        async with self.change(session_id, "undone") as key:
            undone = await undo(self.services.runtime.store, key)
        after = await self.services.access.session(self.caller, session_id)
        description = dataclasses.asdict(undone) if undone else None
        self.reply({"undone": description, "session": session_to_json(after)})


class TurnVersionsHandler(AgentHandler):
    @guard("read")
    @operation(Versions, query=(SESSION,), errors=(404,))
    async def get(self, turn_id: str) -> None:
        """List the versions of a question.

        The versions are in the order in which they were asked.
        """
        stored = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        listed = []
        for number, (other, branch) in enumerate(await self.services.turn_versions.list_versions(stored), 1):
            turn = await self.services.access.stored_turn(self.caller, other, stored.key.id)
            listed.append(
                {
                    "version": number,
                    "turn": other,
                    "branch": branch,
                    "state": turn.state,
                    "model": turn.model,
                    "opened": turn.opened,
                    "closed": turn.closed,
                    "current": await self._is_current(turn.key, other),
                }
            )
        self.reply({"session": stored.key.id, "versions": listed})

    async def _is_current(self, key: SessionKey, turn: str) -> bool:
        return any(current_turn.id == turn for current_turn in await self.services.runtime.store.turns(key))
