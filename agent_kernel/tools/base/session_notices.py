"""Sends a warning of a tool source to each session at most once."""

from __future__ import annotations

from agent_kernel.core.events import Notice
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.tools.base.tool_source import ToolSourceContext

REMEMBERED = 1000
"""Maximum number of sent warnings that are remembered, over all sessions. Beyond it the oldest is forgotten, so that
the same warning may be sent again."""


class SessionNotices:
    def __init__(self) -> None:
        self._sent = RecentEntries[tuple[str, str, str], None](REMEMBERED)

    def warn(self, occasion: ToolSourceContext, text: str, topic: str = "") -> None:
        """Send the warning ``text``, unless the session has already received a warning with the same ``topic``. An
        empty ``topic`` stands for the text itself."""
        notice = (occasion.key.namespace, occasion.key.id, topic or text)
        if notice in self._sent:
            return
        self._sent[notice] = None
        occasion.emit(Notice("warning", text))
