"""Checks whether the token of a caller who stays connected, as with a stream, would be accepted now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from jupyter_core.utils import ensure_async

from agent_kernel.core.errors import Forbidden, HubUnavailable, StoreError
from jupyter_ext.auth.callers import ScopedUser
from jupyter_ext.auth.page_check import repeat_handler

if TYPE_CHECKING:
    from jupyter_ext.api.http.handler import AgentHandler


def token_check(handler: AgentHandler) -> Callable[[], Awaitable[bool]] | None:
    """Return a function that returns whether the caller's token would be accepted now, for the same user. Returns None
    if the caller has no token that can be revoked: neither a long-lived API token nor a token of a JupyterHub."""
    revocable = handler.caller.token is not None or isinstance(handler.caller.user, ScopedUser)
    return partial(_is_token_valid, handler) if revocable else None


async def _is_token_valid(handler: AgentHandler) -> bool:
    """Return whether the token of the caller would be accepted now, for the same user. If a hub or a shared database
    does not answer, as while it restarts, return True: the next check decides."""
    caller = handler.caller
    if caller.token is not None:
        try:
            return await asyncio.to_thread(handler.services.state.tokens.is_valid, caller.token)
        except StoreError:
            return True
    try:
        user = await ensure_async(handler.identity_provider.get_user(repeat_handler(handler)))
    except HubUnavailable:
        return True
    except Forbidden:
        return False
    return isinstance(user, ScopedUser) and user == caller.user
