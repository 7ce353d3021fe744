"""Files that a turn was given by their ids become files of its session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_kernel.errors import FileNotFound
from agent_kernel.sessions.model import SessionKey
from jupyter_ext.callers import Caller

if TYPE_CHECKING:
    from jupyter_ext.app import AgentKernel


async def attach(app: AgentKernel, caller: Caller, key: SessionKey, ids: Sequence[str]) -> None:
    """Those of sessions that the caller may not use are not found. Raises FileNotFound."""
    files = app.runtime.files
    known = {file.id for file in await files.files(key)} if files is not None and ids else set()
    for id in dict.fromkeys(ids):
        if id in known:
            continue
        owners = await files.sessions_of(key.namespace, id) if files is not None else []
        usable = [owner for owner in owners if await app.access.may_use(caller, owner.id)]
        if files is None or not usable:
            raise FileNotFound(f"There is no file {id[:80]!r}.", details={"file": id[:200]})
        await files.attach(key, usable[0], id)
