"""Reads a range of a session's turns, oldest first, with the events that a person saw.

The cost depends on the number of turns in the range, not on the number of turns before it. The files of the session
are listed once for all turns."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.events import Event, EventNumbering
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media, Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey, Turn
from jupyter_ext.turns.stored_events import files_of, insert_files, medium_to_json, stored_bodies
from jupyter_ext.turns.turn_versions import TurnVersions
from jupyter_ext.turns.turns import LiveTurn

RECORDED = ("permission", "error")
"""Fields of a turn's record that its events do not contain."""


async def read_window(
    store: SessionStore, key: SessionKey, limit: int, before: str = "", *, line: Sequence[LiveTurn] = ()
) -> dict[str, Any]:
    """Return the last ``limit`` turns of the current branch; with ``before``, the last ``limit`` turns before that
    turn.

    In the result, ``older`` says whether there are earlier turns, and ``waiting`` contains the turns of ``line`` that
    the store does not have yet. ``line`` are the unfinished turns of the session; read them before calling this
    function. Media of stored turns have no data (see ``sessions/{id}/blobs/{hash}``). Raises TurnNotFound if ``before``
    does not exist.
    """
    newest = await store.turns(key, limit + 1, before=before)
    window = newest[-limit:] if limit else []
    stored = {turn.id for turn in newest}
    waiting = [] if before else [live for live in line if live.id not in stored]
    history = _History(store, TurnVersions(store), await files_of(store, key) if window or waiting else {})
    requests = {live.id: live for live in line}
    return {
        "turns": [await history.describe(turn, requests.get(turn.id)) for turn in window],
        "older": len(newest) > len(window),
        "waiting": [history.describe_waiting(live) for live in waiting],
    }


@dataclass(frozen=True, slots=True)
class _History:
    store: SessionStore
    versions: TurnVersions
    files: Mapping[str, File]

    async def describe(self, turn: Turn, live: LiveTurn | None) -> dict[str, Any]:
        """Return a stored turn as JSON. ``live`` is the turn's state if this server runs the turn. A turn that still
        runs, on this or another server, is described without events, because a client can follow them. A turn without
        stored items is described by its request."""
        runs = live is not None or turn.state == "open"
        messages = await self.versions.messages(turn)
        request = next((message for message in messages if message.role == "user" and not message.hidden), None)
        if request is None and live is not None:
            return self.describe_waiting(live)
        return {
            "turn": turn.id,
            "session": turn.key.id,
            "state": turn.state,
            "running": runs,
            "prompt": request.text if request else "",
            "cell": turn.cell,
            "context": [str(title) for title in turn.record.get("notes", ())],
            "inputs": self._inputs(turn.record.get("inputs", ())),
            "media": [medium_to_json(medium) for medium in request.media] if request else [],
            "model": turn.model,
            "where": turn.where,
            "usage": dict(turn.usage),
            "record": {name: turn.record[name] for name in RECORDED if name in turn.record},
            "created": turn.opened,
            "closed": turn.closed,
            "events": [] if runs else [event.to_json() for event in await self._events(turn, messages)],
        }

    def describe_waiting(self, live: LiveTurn) -> dict[str, Any]:
        """Describe a turn that the store does not have yet. The description contains the bytes of its media, because
        nothing else has them."""
        request = live.spec.request
        return {
            "turn": live.id,
            "session": live.spec.key.id,
            "state": "open",
            "running": True,
            "prompt": request.last_user_text,
            "cell": request.cell,
            "context": [note.title for note in request.notes],
            "inputs": self._inputs(request.inputs),
            "media": [medium_to_json(medium) | _data(medium) for medium in request.media],
            "model": "",
            "where": request.where,
            "usage": {},
            "record": {},
            "created": live.created,
            "closed": None,
            "events": [],
        }

    def _inputs(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        files = [self.files[id] for id in ids if id in self.files]
        return [{"id": file.id, "name": file.name, "mime": file.mime, "size": file.size} for file in files]

    async def _events(self, turn: Turn, messages: list[Message]) -> list[Event]:
        """Return the events of a stored turn. Each has the time at which the turn began or ended, because the times in
        between are not stored."""
        version = await self.versions.describe(turn)
        bodies = [*insert_files(stored_bodies(turn, messages, whole=True), turn, self.files)]
        if version is not None:
            bodies.insert(1, version)
        closed = turn.closed or turn.opened
        times = iter([turn.opened] * (len(bodies) - 1) + [closed])
        stamp = EventNumbering(turn.id, turn.key.id, lambda: next(times))
        return [stamp(body) for body in bodies]


def _data(medium: Media) -> dict[str, Any]:
    return {} if medium.data is None else {"data": base64.b64encode(medium.data).decode()}
