"""Watches the contents service of this server: notebooks that are saved, renamed, copied or deleted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from jupyter_events import EventLogger
from jupyter_server import DEFAULT_EVENTS_SCHEMA_PATH

from jupyter_ext.notebooks.notebook_file_sync import NotebookFiles

SCHEMA = "https://events.jupyter.org/jupyter_server/contents_service/v1"


class ContentsWatch:
    """Calls ``listener`` for each event of the contents service. Paths are below the contents root, without a leading
    slash. For a directory there is one event, and none for the files in it."""

    def __init__(self, events: EventLogger, listener: NotebookFiles) -> None:
        if SCHEMA not in events.schemas:  # the contents manager registers this hook only at its first event
            events.register_event_schema(DEFAULT_EVENTS_SCHEMA_PATH / "contents_service" / "v1.yaml")
        self._events = events
        self._listener = listener
        self._hear: Callable[[EventLogger, str, dict[str, Any]], Coroutine[Any, Any, None]] = self._on_event
        events.add_listener(schema_id=SCHEMA, listener=self._hear)

    def close(self) -> None:
        self._events.remove_listener(schema_id=SCHEMA, listener=self._hear)

    async def _on_event(self, logger: EventLogger, schema_id: str, data: dict[str, Any]) -> None:
        path = str(data["path"]).strip("/")
        match data["action"]:
            case "rename":
                await self._listener.on_renamed(str(data["source_path"]).strip("/"), path)
            case "delete":
                await self._listener.on_deleted(path)
            case "save":
                await self._listener.on_saved(path)
            case "copy":
                await self._listener.on_copied(str(data["source_path"]).strip("/"), path)
