"""Routes that list, create, read, replace, rename, clear and delete sessions."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

from agent_kernel.core.errors import (
    AgentKernelError,
    BranchNotFound,
    InvalidRequest,
    NotFound,
    SessionNotFound,
    StoreError,
)
from agent_kernel.core.session import Item, Session, SessionKey, new_id
from agent_kernel.sessions.export.import_export import export_session, import_session
from agent_kernel.sessions.serialization import fields_to_json
from agent_kernel.sessions.store.private_store import is_private, private_id
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import DescribeBody, EmptyBody, SessionBody
from jupyter_ext.api.responses.live_responses import responses_of
from jupyter_ext.api.schemas import sessions as shapes
from jupyter_ext.api.schemas.operation import BRANCH, IF_MATCH, PLACE, Count, Parameter, Raw, limit, operation
from jupyter_ext.turns.turns import session_busy

LISTED = 50
MAX_LISTED = 1000
JSON_FORMATS = ("agent-kernel", "openai", "mistralrs")
FACTS = "facts"
SERIALIZED = Parameter(
    "format",
    "facts: the session without its history. Any other value: only the history, in that format.",
    Literal["facts", "agent-kernel", "openai", "mistralrs"],
)
REVISION = re.compile(r'(?:W/)?"?([0-9]{1,15})"?')
"""Matches the revision of a session as a client sends it back in If-Match: the ETag of ``sessions/{id}``."""
SEARCHED = 5000
"""Number of the most recently used sessions among which a search by name looks."""


def brief(session: Session) -> dict[str, Any]:
    """Return the fields of a session that every caller of the namespace may see."""
    return {
        "id": session.key.id,
        "title": session.title,
        "tags": list(session.tags),
        "created": session.created,
        "updated": session.updated,
        "accessed": session.accessed,
        "turns": session.turn_count,
        "head": session.last_seq,
        "revision": session.revision,
        "branch": session.branch,
        "private": is_private(session.key.id),
    }


DOCUMENT = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}
"""The schema of a complete session in one of the formats that ``PUT`` accepts."""


def session_to_json(session: Session) -> dict[str, Any]:
    imported = None if session.imported is None else dict(session.imported)
    return {**brief(session), "metadata": dict(session.metadata), "context": session.context, "imported": imported}


def names_of(session: Session) -> str:
    """Return the title, id and tags of a session as one text, in which ``name`` is searched."""
    return "\n".join((session.title, session.key.id, *session.tags)).casefold()


def item_to_json(item: Item) -> dict[str, Any]:
    return {"seq": item.seq, "turn": item.turn, "time": item.time, "message": item.message.to_json()}


class SessionChangeHandler(AgentHandler):
    """Base class of the routes that change one session."""

    @contextlib.asynccontextmanager
    async def change(self, session_id: str, kind: str) -> AsyncIterator[SessionKey]:
        """Hold the lock of the session while the body of the ``with`` statement changes it, then mark its sidecars as
        out of date. ``kind`` is the kind of change. Raises SessionNotFound, Forbidden, and Conflict if the session has
        another revision than If-Match names."""
        key = (await self.services.access.session(self.caller, session_id)).key
        async with self.services.revision_locks.change(key, read_if_match(self), kind):
            yield key
        await self.services.sidecars.touch(key)


class SessionsHandler(AgentHandler):
    @guard("read")
    @operation(
        shapes.Sessions,
        query=(
            limit(LISTED, MAX_LISTED),
            Parameter("name", "List only sessions whose title, tags or id contain this text."),
            *PLACE,
        ),
        errors=(404,),
    )
    async def get(self) -> None:
        """List sessions.

        A user also gets the notebooks that use each session; a kernel does not. The search by ``name`` ignores upper
        and lower case.
        """
        limit = min(self.number("limit", LISTED) or LISTED, MAX_LISTED)
        name = self.get_argument("name", "").casefold()
        place = await self.find_queried_place()
        bound = await self.services.notebooks.bound_session(self.caller.namespace, place) if place else None
        sessions = await self.services.runtime.store.list(self.caller.namespace, SEARCHED if name else limit)
        matching = [session for session in sessions if name in names_of(session)]
        listed = [{**brief(session), "bound": session.key == bound} for session in matching[:limit]]
        if self.caller.kernel is None:
            for body, session in zip(listed, matching, strict=False):
                body["notebooks"] = await self.services.notebooks.paths(session.key)
        self.reply({"sessions": listed})

    @guard("write")
    @operation(shapes.BoundSession, status=201, body=SessionBody, query=PLACE, errors=(404, 409, 507))
    async def post(self) -> None:
        """Create a session, or get the session that already has the given id."""
        body = self.parse(SessionBody)
        place = await self.find_queried_place()
        key = SessionKey(self.caller.namespace, body.id or await self._create(body, place))
        await self.services.access.claim_id(self.caller, key.id)
        session = await self.services.runtime.store.create(key, body.title)
        bound = body.bind and place is not None
        if bound and place is not None:
            await self.services.notebooks.bind(key, place)
        self.reply({**session_to_json(session), "bound": bound}, 201)

    async def _create(self, body: SessionBody, place: str | None) -> str:
        """Return the id for a new session. It is the id of a private session if ``body.private`` asks for one. If the
        body does not say, the session is private if it replaces a private session of the notebook."""
        private = body.private
        if private is None and body.bind and place is not None:
            bound = await self.services.notebooks.bound_session(self.caller.namespace, place)
            private = bound is not None and is_private(bound.id)
        return private_id() if private else new_id("session")


class SessionHandler(SessionChangeHandler):
    def compute_etag(self) -> str | None:
        """Return None: the ETag is set where a session is sent; tornado's own would be a hash of the body."""
        return None

    @guard("read")
    @operation(shapes.WithHistory | dict[str, Any], query=(SERIALIZED,), errors=(404,))
    async def get(self, session_id: str) -> None:
        """Get a session.

        The response has the session and its history in the format of mistral.rs, which PUT accepts. ``format=facts``
        omits the history; every other format returns only the history, in that format.
        """
        session = await self.services.access.session(self.caller, session_id)
        format = self.get_argument("format", "")
        if format not in ("", FACTS, *JSON_FORMATS):
            formats = ", ".join((FACTS, *JSON_FORMATS))
            raise InvalidRequest(
                f"The format must be one of {formats}.", hint="Use sessions/{id}/export for other formats."
            )
        if format in JSON_FORMATS:
            written = await export_session(self.services.runtime.store, session.key, format)
            self.finish(written.document)
            return
        body = {**session_to_json(session), "notebooks": await self.services.notebooks.paths(session.key)}
        self.set_header("ETag", etag(session.revision))
        if format == FACTS:
            self.reply(body)
            return
        written = await export_session(self.services.runtime.store, session.key, "mistralrs")
        # The documents are joined as bytes, because the history may be large and is JSON already.
        self.finish(json.dumps(body).encode()[:-1] + b"," + written.document[1:])

    @guard("write")
    @operation(
        shapes.Replaced,
        body=Raw(("application/json",), DOCUMENT),
        query=(IF_MATCH,),
        errors=(404, 409, 507),
        conditions="The body must be a document in one of the formats that GET returns.",
    )
    async def put(self, session_id: str) -> None:
        """Replace or create a session from a document.

        The body is a session in the format of mistral.rs, whose values may be tagged, a list of OpenAI messages, or a
        document of agent-kernel. If one of its media cannot be read, nothing is changed.
        """
        body = self.json_body()
        if is_private(session_id):
            raise InvalidRequest("A private session cannot be replaced: only its notebook can add turns to it.")
        is_new = await self.services.access.claim_id(self.caller, session_id)
        key = SessionKey(self.caller.namespace, session_id)
        try:
            async with self.services.revision_locks.change(key, read_if_match(self), "cleared"):
                await self._put(key, body)
        except AgentKernelError:
            if is_new and self.caller.kernel:
                self.caller.kernel.sessions.discard(session_id)
            raise
        await self.services.sidecars.touch(key)
        session = await self.services.access.session(self.caller, session_id)
        self.set_header("ETag", etag(session.revision))
        self.reply({**session_to_json(session), "notebooks": await self.services.notebooks.paths(key)})

    async def _put(self, key: SessionKey, document: bytes) -> None:
        # The turns are looked up by key, because a session that was created a moment ago is not in the store yet.
        if running := self.services.turns.find_unfinished(key):
            raise session_busy(running.id)
        store, redactor = self.services.runtime.store, self.services.runtime.turn_writer.redactor
        async with self.services.import_lock:
            await import_session(store, key.namespace, document, id=key.id, redactor=redactor, replace=True)
        if self.services.turns.find_unfinished(key) is None:  # a turn that started meanwhile uses the work directory
            await self.services.runtime.sandbox.close(key, remove=True)

    @guard("write")
    @operation(
        shapes.Session,
        body=DescribeBody,
        query=(IF_MATCH,),
        errors=(404, 409, 507),
        conditions="At least one field must be sent. Limits: 32 tags, 64 KiB of metadata, 64 KiB of context.",
    )
    async def patch(self, session_id: str) -> None:
        """Rename, tag or describe a session."""
        body = self.parse(DescribeBody)
        async with self.change(session_id, "described" if body.title is None else "title") as key:
            changed = await self.services.runtime.store.describe(key, body.to_update())
        self.set_header("ETag", etag(changed.revision))
        self.reply(session_to_json(changed))

    @guard("write")
    @operation(shapes.Deleted, query=(IF_MATCH,), errors=(409,))
    async def delete(self, session_id: str) -> None:
        """Delete a session.

        Idempotent: deleting a session that does not exist succeeds. The session's sandbox and work directory are
        deleted too.
        """
        deleted, revision = False, read_if_match(self)
        with contextlib.suppress(SessionNotFound):
            session = await self.services.access.session(self.caller, session_id)
            async with self.services.revision_locks.change(session.key, revision, "deleted"):
                deleted = await responses_of(self.services).delete_session(session.key)
        self.reply({"id": session_id, "deleted": deleted})


class SessionClearHandler(SessionChangeHandler):
    @guard("write")
    @operation(shapes.Session, body=EmptyBody, query=(IF_MATCH,), errors=(404, 409))
    async def post(self, session_id: str) -> None:
        """Delete all turns of a session."""
        self.parse(EmptyBody)
        async with self.change(session_id, "cleared") as key:
            await self.services.runtime.store.clear(key)
        self.reply(session_to_json(await self.services.access.session(self.caller, session_id)))


class SessionItemsHandler(AgentHandler):
    @guard("read")
    @operation(
        shapes.Items,
        query=(Parameter("limit", "Return only this many messages, the newest ones; without it, all.", Count), BRANCH),
        errors=(404,),
    )
    async def get(self, session_id: str) -> None:
        """List the stored messages of a session."""
        session = await self.services.access.session(self.caller, session_id)
        store, branch = self.services.runtime.store, self.get_argument("branch", None)
        if branch is not None and all(branch != other.name for other in await store.branches(session.key)):
            raise BranchNotFound(f"There is no branch {branch!r}.", details={"branch": branch})
        items = await store.latest(session.key, self.number("limit"), branch=branch)
        turns = await store.turns(session.key, branch=branch)
        with contextlib.suppress(StoreError):  # a full disk must not prevent reading
            await store.touch(session.key)
        self.reply(
            {"items": [item_to_json(item) for item in items], "turns": [fields_to_json(turn, "key") for turn in turns]}
        )


class BlobHandler(AgentHandler):
    @guard("read")
    @operation(Raw(("application/octet-stream",)), errors=(404,))
    async def get(self, session_id: str, digest: str) -> None:
        """Download an image or a video of a session.

        The bytes are sent without their media type, so that no browser runs output of a model in this origin.
        """
        session = await self.services.access.session(self.caller, session_id)
        data = await self.services.runtime.store.blob(session.key, digest)
        if data is None:
            raise NotFound("This session has no medium with this hash.")
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.set_header("Content-Disposition", "attachment")
        self.finish(data, set_content_type="application/octet-stream")


def etag(revision: int) -> str:
    return f'"{revision}"'


def read_if_match(handler: AgentHandler) -> int | None:
    """Return the revision in If-Match; None if the client does not send one. Raises InvalidRequest."""
    header = handler.request.headers.get("If-Match", "*").strip()
    if header == "*":
        return None
    match = REVISION.fullmatch(header)
    if match is None:
        raise InvalidRequest("If-Match must be the ETag of the session: its revision in quotes.")
    return int(match[1])
