"""A window into the turns of a session, newest at its end, with what a person saw of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_kernel.errors import TurnNotFound
from agent_kernel.events import Stamp, TurnVersion
from agent_kernel.sessions.model import SessionKey, Turn
from agent_kernel.sessions.store import SessionStore
from jupyter_ext.archive import bodies
from jupyter_ext.versions import Versions


async def window(
    store: SessionStore, key: SessionKey, limit: int, before: str = "", *, running: Callable[[str], bool]
) -> dict[str, Any]:
    """The last ``limit`` turns of the current branch, or those before the turn ``before``; ``older``: there are more.
    Media without data (``sessions/{id}/blobs/{hash}``). Raises TurnNotFound for a ``before`` that is not there."""
    turns = await store.turns(key)
    if before:
        place = next((index for index, turn in enumerate(turns) if turn.id == before), None)
        if place is None:
            raise TurnNotFound("There is no such turn on this branch.")
        turns = turns[:place]
    shown = turns[-limit:] if limit else []
    versions = Versions(store)
    listed = [await _told(store, versions, turn, running(turn.id)) for turn in shown]
    return {"turns": listed, "older": len(turns) > len(shown)}


async def _told(store: SessionStore, versions: Versions, turn: Turn, runs: bool) -> dict[str, Any]:
    messages = await versions.said(turn)
    asked = next((message for message in await _asked(store, turn)), None)
    stamp = Stamp(turn.id, turn.key.id)
    version: TurnVersion | None = await versions.told(turn)
    told = [] if runs else [*bodies(turn, messages)]
    if version is not None and told:
        told.insert(1, version)
    return {
        "turn": turn.id,
        "session": turn.key.id,
        "state": turn.state,
        "running": runs,
        "prompt": asked.text if asked else "",
        "cell": turn.cell,
        "context": [],
        "media": [{"mime": one.mime, "hash": one.hash, "size": one.size} for one in asked.media] if asked else [],
        "created": turn.opened,
        "closed": turn.closed,
        "events": [stamp(body).to_json() for body in told],
    }


async def _asked(store: SessionStore, turn: Turn) -> list[Any]:
    messages = [item.message for item in await store.of_turn(turn)]
    return [message for message in messages if message.role == "user" and not message.hidden]
