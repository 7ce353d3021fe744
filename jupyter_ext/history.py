"""A window into the turns of a session, newest at its end, with what a person saw of each. What it costs depends on the
window, not on the turns before it; the files of the session are listed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.events import Event, Stamp
from agent_kernel.files import File
from agent_kernel.messages import Message
from agent_kernel.sessions.model import SessionKey, Turn
from agent_kernel.sessions.store import SessionStore
from jupyter_ext.archive import bodies, files_of, with_files
from jupyter_ext.versions import Versions

RECORDED = ("permission", "error")
"""Of the record of a turn, beside what its events tell."""


async def window(
    store: SessionStore, key: SessionKey, limit: int, before: str = "", *, running: Callable[[str], bool]
) -> dict[str, Any]:
    """The last ``limit`` turns of the current branch, or those before the turn ``before``; ``older``: there are more.
    Media without data (``sessions/{id}/blobs/{hash}``). Raises TurnNotFound for a ``before`` that is not there."""
    found = await store.turns(key, limit + 1, before=before)
    shown = found[-limit:] if limit else []
    history = _History(store, Versions(store), await files_of(store, key) if shown else {})
    return {
        "turns": [await history.told(turn, running(turn.id)) for turn in shown],
        "older": len(found) > len(shown),
    }


@dataclass(frozen=True, slots=True)
class _History:
    store: SessionStore
    versions: Versions
    files: Mapping[str, File]

    async def told(self, turn: Turn, runs: bool) -> dict[str, Any]:
        """Of a turn that ``runs`` here, or at another server, there are no events yet: they can be followed."""
        runs = runs or turn.state == "open"
        messages = await self.versions.said(turn)
        asked = next((message for message in messages if message.role == "user" and not message.hidden), None)
        inputs = [self.files[id] for id in turn.record.get("inputs", ()) if id in self.files]
        return {
            "turn": turn.id,
            "session": turn.key.id,
            "state": turn.state,
            "running": runs,
            "prompt": asked.text if asked else "",
            "cell": turn.cell,
            "context": [str(title) for title in turn.record.get("notes", ())],
            "inputs": [{"id": file.id, "name": file.name, "mime": file.mime, "size": file.size} for file in inputs],
            "media": [{"mime": one.mime, "hash": one.hash, "size": one.size} for one in asked.media] if asked else [],
            "model": turn.model,
            "where": turn.where,
            "usage": dict(turn.usage),
            "record": {name: turn.record[name] for name in RECORDED if name in turn.record},
            "created": turn.opened,
            "closed": turn.closed,
            "events": []
            if runs or turn.state == "open"
            else [event.to_json() for event in await self._events(turn, messages)],
        }

    async def _events(self, turn: Turn, messages: list[Message]) -> list[Event]:
        """With the times at which the turn began and ended; those between are not kept."""
        version = await self.versions.told(turn)
        told = [*with_files(bodies(turn, messages, whole=True), turn, self.files)]
        if version is not None:
            told.insert(1, version)
        closed = turn.closed or turn.opened
        times = iter([turn.opened] * (len(told) - 1) + [closed])
        stamp = Stamp(turn.id, turn.key.id, lambda: next(times))
        return [stamp(body) for body in told]
