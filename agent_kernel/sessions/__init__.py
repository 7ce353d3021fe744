"""Stored conversations: how turns are written, serialized, merged and matched. Databases are in ``store`` and
``tables``.

The names ``Sessions`` and ``Chat``, by which programs store conversations, are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_kernel.sessions.adapters.sessions import Chat, Sessions, SyncChat, SyncSessions

__all__ = ["Chat", "Sessions", "SyncChat", "SyncSessions"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agent_kernel.sessions' has no attribute {name!r}")
    return getattr(importlib.import_module("agent_kernel.sessions.adapters.sessions"), name)
