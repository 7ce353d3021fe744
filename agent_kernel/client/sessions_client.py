"""Lists, creates, reads, changes, branches, forks, exports, imports, deletes and searches the sessions of the
caller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.client.http import Query, ServerConnection, json_of
from agent_kernel.client.session import Branch, Found, Line, Session
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.notebook.server_client import route

MOST = 1_000


class SessionsClient:
    """The sessions that the caller has on a server.

    Methods that take a session's id raise SessionNotFound. Methods that change a session raise SessionBusy while a turn
    runs, and Conflict if ``revision`` is given and is not the session's revision.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def list(self, limit: int = MOST, name: str = "") -> Sequence[Session]:
        """Return the sessions, newest first. With ``name``, return only those whose title, tags or id contain it."""
        reply = await self._connection.call("GET", "sessions", query={"limit": limit, "name": name or None})
        return [Session.from_json(session) for session in reply["sessions"]]

    async def create(self, title: str = "", id: str | None = None, *, private: bool = False) -> Session:
        """Return the session with that id; create it if it does not exist. A ``private`` session exists only in the
        server's memory and is not listed.
        """
        body = {"title": title, "bind": False, **({"id": id} if id else {}), **({"private": True} if private else {})}
        return Session.from_json(await self._connection.call("POST", "sessions", body))

    async def get(self, id: str) -> Session:
        return Session.from_json(await self._call("GET", id, query={"format": "facts"}))

    async def rename(self, id: str, title: str, *, revision: int | None = None) -> Session:
        return await self.describe(id, revision=revision, title=title)

    async def describe(self, id: str, *, revision: int | None = None, **what: Any) -> Session:
        """Change the ``tags``, ``metadata``, ``context`` or ``title`` of the session, and return the changed
        session."""
        return Session.from_json(await self._call("PATCH", id, body=what, revision=revision))

    async def delete(self, id: str) -> bool:
        """Delete the session; return False if it did not exist."""
        return bool((await self._call("DELETE", id)).get("deleted"))

    async def clear(self, id: str) -> Session:
        """Delete all turns of the session, on every branch."""
        return Session.from_json(await self._call("POST", id, "clear", body={}))

    async def items(self, id: str, limit: int | None = None, branch: str | None = None) -> Sequence[Line]:
        """Return the newest ``limit`` messages of a branch (None: of the current branch), oldest of them first."""
        reply = await self._call("GET", id, "items", query={"limit": limit, "branch": branch})
        return [Line.from_json(item) for item in reply["items"]]

    async def turns(self, id: str, limit: int | None = None, before: str = "") -> Sequence[dict[str, Any]]:
        """Return the newest ``limit`` turns, or with ``before`` the newest ones before the turn with this id, as JSON
        of the route ``sessions/{id}/turns``."""
        reply = await self._call("GET", id, "turns", query={"limit": limit, "before": before or None})
        return [dict(turn) for turn in reply["turns"]]

    async def usage(self, id: str) -> dict[str, Any]:
        """Return the tokens and seconds that the turns used, and how full the model's context is."""
        return await self._call("GET", id, "usage")

    async def permissions(self, id: str) -> dict[str, Any]:
        """Return the server's policy, and in ``grants`` the user's decisions that apply to the rest of this session."""
        return await self._call("GET", id, "permissions")

    async def revoke(self, id: str, kind: str | None = None, tool: str | None = None) -> int:
        """Delete the stored decisions about the kind ``kind`` and the tool ``tool``, or all decisions if neither is
        given. Returns how many were deleted."""
        return int((await self._call("DELETE", id, "permissions", query={"kind": kind, "tool": tool}))["revoked"])

    async def fork(self, id: str, turns: int | None = None, into: str | None = None) -> Session:
        """Copy the first ``turns`` turns (None: all) to a new session and return the new session. ``into`` is the id
        of the new session; None lets the server choose one."""
        body = {**({} if turns is None else {"turns": turns}), **({"id": into} if into else {})}
        return Session.from_json(await self._call("POST", id, "fork", body=body))

    async def undo(self, id: str) -> dict[str, Any] | None:
        """Remove the newest turn. Returns the turn with the code that it ran, because the effects of the code stay;
        returns None if there is no turn."""
        reply = await self._call("POST", id, "undo", body={})
        return reply["undone"] and dict(reply["undone"])

    async def branches(self, id: str) -> Sequence[Branch]:
        return [Branch.from_json(branch) for branch in (await self._call("GET", id, "branches"))["branches"]]

    async def branch(self, id: str, before: str | None = None, name: str = "") -> Branch:
        """Create a branch and make it the current one. It ends before the turn ``before``; without ``before`` it
        contains all turns.
        """
        body = {"name": name, **({"before": before} if before else {})}
        return Branch.from_json(await self._call("POST", id, "branches", body=body))

    async def switch(self, id: str, name: str) -> Branch:
        """Make an existing branch the current one."""
        return Branch.from_json(await self._call("PUT", id, "branch", body={"name": name}))

    async def drop_branch(self, id: str, name: str) -> None:
        await self._call("DELETE", id, "branches", name)

    async def search(self, words: str, limit: int = 5, role: str = "") -> Sequence[Found]:
        """Return the sessions that contain any of the words in ``words``, best match first. ``role`` restricts the
        search to messages of this role."""
        reply = await self._connection.call("GET", "search", query={"q": words, "limit": limit, "role": role or None})
        return [Found.from_json(hit) for hit in reply["hits"]]

    async def export(self, id: str, format: str = "agent-kernel", branch: str | None = None) -> bytes:
        """Return the session as a document: agent-kernel (lossless), mistralrs, openai, markdown, notebook, ..."""
        path, query = route("sessions", id, "export"), {"format": format, "branch": branch}
        return (await self._connection.send("GET", path, query=query, headers={"Accept": "*/*"})).content

    async def import_document(self, document: bytes | str, format: str | None = None) -> Session:
        """Create a session from a document and return it. Its messages are imported, permissions are not. Raises
        InvalidRequest for an invalid document."""
        body = document.encode() if isinstance(document, str) else document
        response = await self._connection.send("POST", "sessions/import", body, query={"format": format})
        return Session.from_json(json_of(response))

    async def replace(self, id: str, document: bytes | str | dict[str, Any]) -> None:
        """Replace the session of that id with the document. Raises InvalidRequest."""
        if isinstance(document, dict):
            body = json.dumps(document).encode()
        else:
            body = document.encode() if isinstance(document, str) else document
        if not body.strip():
            raise InvalidRequest("The document to import is empty.")
        await self._connection.send("PUT", route("sessions", id), body, headers={"Content-Type": "application/json"})

    async def _call(
        self,
        method: str,
        id: str,
        *more: str,
        body: Mapping[str, Any] | None = None,
        query: Query | None = None,
        revision: int | None = None,
    ) -> dict[str, Any]:
        """Send a request about a session. With ``revision``, the server refuses it if the session has another
        revision."""
        headers = {} if revision is None else {"If-Match": f'"{revision}"'}
        return await self._connection.call(method, route("sessions", id, *more), body, query=query, headers=headers)
