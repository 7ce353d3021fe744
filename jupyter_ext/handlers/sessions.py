"""Sessions: list, make, read, rename, clear, delete."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from agent_kernel.errors import NotFound, SessionNotFound
from agent_kernel.sessions.model import Item, Session, SessionKey, Turn, new_id
from jupyter_ext.handlers.base import AgentHandler, guarded
from jupyter_ext.handlers.bodies import EmptyBody, SessionBody, TitleBody

LISTED = 50
MAX_LISTED = 1000


def session_to_json(session: Session) -> dict[str, Any]:
    return {
        "id": session.key.id,
        "title": session.title,
        "created": session.created,
        "updated": session.updated,
        "turns": session.turns,
        "head": session.head,
    }


def item_to_json(item: Item) -> dict[str, Any]:
    return {"seq": item.seq, "turn": item.turn, "time": item.time, "message": item.message.to_json()}


def turn_to_json(turn: Turn) -> dict[str, Any]:
    fields = [field.name for field in dataclasses.fields(turn) if field.name not in ("key", "usage", "record")]
    body = {name: getattr(turn, name) for name in fields}
    return {**body, "usage": dict(turn.usage), "record": dict(turn.record)}


class SessionsHandler(AgentHandler):
    @guarded("read")
    async def get(self) -> None:
        """A kernel sees the titles in its namespace, to choose from."""
        limit = min(self.number("limit", LISTED) or LISTED, MAX_LISTED)
        place = await self.app.access.place(self.caller, self.get_argument("kernel", ""), self.get_argument("path", ""))
        bound = await self.app.notebooks.bound(self.caller.namespace, place) if place else None
        found = await self.app.runtime.store.list(self.caller.namespace, limit)
        listed = [{**session_to_json(session), "bound": session.key == bound} for session in found]
        self.reply({"sessions": listed})

    @guarded("write")
    async def post(self) -> None:
        body = self.parse(SessionBody)
        place = await self.app.access.place(self.caller, self.get_argument("kernel", ""), self.get_argument("path", ""))
        key = SessionKey(self.caller.namespace, body.id or new_id("session"))
        await self.app.access.claim_id(self.caller, key.id)
        session = await self.app.runtime.store.create(key, body.title)
        bound = body.bind and place is not None
        if bound and place is not None:
            await self.app.notebooks.bind(key, place)
        self.reply({**session_to_json(session), "bound": bound}, 201)


class SessionHandler(AgentHandler):
    @guarded("read")
    async def get(self, session_id: str) -> None:
        session = await self.app.access.session(self.caller, session_id)
        self.reply({**session_to_json(session), "notebooks": await self.app.notebooks.paths(session.key)})

    @guarded("write")
    async def patch(self, session_id: str) -> None:
        body = self.parse(TitleBody)
        session = await self.app.access.session(self.caller, session_id)
        await self.app.runtime.store.rename(session.key, body.title)
        renamed = await self.app.access.session(self.caller, session_id)
        await self.app.sidecars.touch(session.key)
        self.reply(session_to_json(renamed))

    @guarded("write")
    async def delete(self, session_id: str) -> None:
        """Idempotent: what is not there is deleted. The session's sandbox ends with it."""
        deleted = False
        with contextlib.suppress(SessionNotFound):
            session = await self.app.access.session(self.caller, session_id)
            deleted = await self.app.runtime.store.delete(session.key)
            await self.app.runtime.sandbox.close(session.key)
        self.reply({"id": session_id, "deleted": deleted})


class SessionClearHandler(AgentHandler):
    @guarded("write")
    async def post(self, session_id: str) -> None:
        self.parse(EmptyBody)
        session = await self.app.access.session(self.caller, session_id)
        await self.app.runtime.store.clear(session.key)
        await self.app.sidecars.touch(session.key)
        self.reply(session_to_json(await self.app.access.session(self.caller, session_id)))


class SessionItemsHandler(AgentHandler):
    @guarded("read")
    async def get(self, session_id: str) -> None:
        session = await self.app.access.session(self.caller, session_id)
        items = await self.app.runtime.store.latest(session.key, self.number("limit"))
        turns = await self.app.runtime.store.turns(session.key)
        self.reply({"items": [item_to_json(item) for item in items], "turns": [turn_to_json(turn) for turn in turns]})


class BlobHandler(AgentHandler):
    @guarded("read")
    async def get(self, session_id: str, digest: str) -> None:
        """Bytes without a type: nothing a model made is to be run by a browser in this origin."""
        session = await self.app.access.session(self.caller, session_id)
        data = await self.app.runtime.store.blob(session.key, digest)
        if data is None:
            raise NotFound("This session has no such file.")
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.set_header("Content-Disposition", "attachment")
        self.finish(data, set_content_type="application/octet-stream")
