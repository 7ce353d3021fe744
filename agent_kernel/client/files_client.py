"""Uploads, lists, reads and deletes the files of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_kernel.client.client_functions import upload_file
from agent_kernel.client.file import File
from agent_kernel.client.http import ServerConnection
from agent_kernel.client.input_file import Given, input_file
from agent_kernel.notebook.server_client import route

USER_DATA = "user_data"


class FilesClient:
    """The files that the caller has on a server. Methods that take the id of a file raise FileNotFound if there is no
    such file."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def upload(self, file: Given, session: str = "", *, name: str = "", purpose: str = USER_DATA) -> File:
        """Stream a file to the server. The session is created if it does not exist.

        Without a session, the file can later be given to a turn of any session. Raises FileTooLarge, QuotaExceeded,
        InvalidRequest.
        """
        upload_input = input_file(file)
        if name:
            upload_input = type(upload_input)(name, upload_input.source, upload_input.mime)
        return await upload_file(self._connection, upload_input, session, purpose)

    async def list(self, session: str = "", limit: int | None = None) -> Sequence[File]:
        """Return all files of the caller, newest first, or the files of one session, oldest first."""
        reply = await self._connection.call("GET", "files", query={"session": session or None, "limit": limit})
        return [self._file(file) for file in reply["data"]]

    async def get(self, id: str, session: str = "") -> File:
        return self._file(await self._connection.call("GET", route("files", id), query={"session": session or None}))

    async def delete(self, id: str, session: str = "") -> None:
        """Delete the file from the session ``session``. Without ``session``, delete it from all sessions that have
        it."""
        await self._connection.call("DELETE", route("files", id), query={"session": session or None})

    def _file(self, wire: dict[str, Any]) -> File:
        return File.from_json(wire, connection=self._connection)
