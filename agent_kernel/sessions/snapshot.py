"""One consistent reading of a whole session, for an export while turns go on."""

from __future__ import annotations

from agent_kernel.errors import Conflict
from agent_kernel.sessions.model import SessionKey
from agent_kernel.sessions.store import SessionStore
from agent_kernel.sessions.transcript import Transcript

_ATTEMPTS = 20


async def snapshot(store: SessionStore, key: SessionKey) -> Transcript | None:
    """The session with its turns, items and media at one revision, or None if there is none.

    A store reads each of them in a transaction of its own, so a reading counts only if the revision stayed. Raises
    Conflict when it changed twenty times over.
    """
    for _ in range(_ATTEMPTS):
        session = await store.info(key)
        if session is None:
            return None
        turns, items = await store.turns(key), await store.latest(key)
        hashes = dict.fromkeys(medium.hash for item in items for medium in item.message.media)
        blobs = {digest: await store.blob(key, digest) for digest in hashes}
        if await store.info(key) == session:
            known = {digest: data for digest, data in blobs.items() if data is not None}
            return Transcript(session, tuple(turns), tuple(items), known)
    raise Conflict("The session changes too fast to be copied.", details={"session": key.id})
