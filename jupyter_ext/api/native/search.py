"""Routes that search the texts of sessions, and take a kernel's request to search all sessions."""

from __future__ import annotations

import dataclasses
import time
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SearchHit, SessionKey, SessionQuery
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import EmptyBody
from jupyter_ext.api.native.sessions import brief
from jupyter_ext.api.schemas.operation import PLACE, WHICH_NOTEBOOK, Count, Parameter, operation
from jupyter_ext.api.schemas.server import Granted, Pending
from jupyter_ext.api.schemas.sessions import Found

FOUND = 5
MAX_FOUND = 50
SECONDS = r"[0-9]{1,11}(\.[0-9]{1,6})?"
DATE = r"(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
Moment = Annotated[str, Field(pattern=f"^({SECONDS}|{DATE})?$")]
"""A time in seconds since the epoch, or a date. The pattern describes these two forms; the server also accepts every
other form of ISO 8601."""


class SearchHandler(AgentHandler):
    @guard("read")
    @operation(
        Found,
        query=(
            Parameter("q", "The words to search for; a result contains at least one of them."),
            Parameter(
                "limit", f"At most this many results; {FOUND} if it is missing, never more than {MAX_FOUND}.", Count
            ),
            Parameter("role", "Search only messages of this role.", Literal["", "user", "assistant"]),
            Parameter("since", "Only messages after this time: seconds since the epoch, or ISO 8601.", Moment),
            Parameter("until", "Only messages before this time, in the same formats.", Moment),
            Parameter("here", "1: search only the session of the notebook."),
            *PLACE,
        ),
        errors=(404,),
    )
    async def get(self) -> None:
        """Search the text of sessions.

        With ``here``, ``kernel`` or ``path``, only the session of that notebook is searched. A kernel gets results only
        from sessions that it may read, because a result contains text of the session.
        """
        root, path = await self._notebook()
        query = SessionQuery(
            self.get_argument("q", "", strip=False),
            limit=min(FOUND if (wanted_limit := self.number("limit")) is None else wanted_limit, MAX_FOUND),
            role=self.get_argument("role", ""),
            root=root,
            path=path,
            since=self._moment("since"),
            until=self._moment("until"),
            sessions=await self.services.access.readable(self.caller),
        )
        started = time.perf_counter()
        hits = await self.services.runtime.store.search(self.caller.namespace, query)
        seconds = round(time.perf_counter() - started, 4)
        searched = "all" if query.sessions is None else "own"
        self.reply({"hits": [await self._hit_to_json(hit) for hit in hits], "searched": searched, "seconds": seconds})

    async def _notebook(self) -> tuple[str, str]:
        """Return (contents root, path) for a search of one notebook, else empty strings."""
        kernel, path = self.get_argument("kernel", ""), self.get_argument("path", "")
        only_here = self.get_argument("here", "") in ("1", "true")
        if not (only_here or kernel or path):
            return "", ""
        place = await self.services.access.place(self.caller, kernel, path)
        if place is None:
            raise InvalidRequest("The request does not name the notebook to search.", hint=WHICH_NOTEBOOK)
        return self.services.notebooks.root, place

    def _moment(self, name: str) -> float | None:
        """Return seconds since the epoch. The query has that number, or an ISO 8601 date and time, in this machine's
        time zone by default. Raises InvalidRequest."""
        raw = self.get_argument(name, "")
        try:
            return float(raw) if raw else None
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(raw).timestamp()
        except (ValueError, OverflowError, OSError):
            raise InvalidRequest(f"{name} must be a date such as 2026-01-31, not {raw[:40]!r}.") from None

    async def _hit_to_json(self, hit: SearchHit) -> dict[str, Any]:
        return {
            "session": brief(hit.session),
            "score": round(hit.score, 4),
            "notebooks": await self.services.notebooks.paths(hit.session.key),
            "snippets": [dataclasses.asdict(piece) for piece in hit.snippets],
        }


class SearchAccessHandler(AgentHandler):
    @guard("write")
    @operation(Granted, body=EmptyBody, also={202: Pending})
    async def post(self) -> None:
        """Check whether the caller may search all sessions.

        If a kernel may not, this request asks a person to allow it in the browser (202).
        """
        self.parse(EmptyBody)
        kernel = self.caller.kernel
        if kernel is None or kernel.may_search:
            self.reply({"granted": True})
            return
        place = await self.services.notebooks.place(kernel.id)
        bind = self.services.bind_requests.add(kernel.id, SessionKey(kernel.namespace, "all"), place, search=True)
        self.reply(self.services.bind_requests.pending(bind), 202)
