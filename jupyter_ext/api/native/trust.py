"""Routes that list, add and remove trusted folders, whose instructions, skills and MCP servers turns use. If a kernel
sends the request, a person must confirm it in the browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

from agent_kernel.core.errors import Forbidden, InvalidRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.core.trusted_folders import TrustedFolder
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import Body
from jupyter_ext.api.schemas import server as shapes
from jupyter_ext.api.schemas.operation import NOTEBOOK_NAMED, PLACE, WHICH_NOTEBOOK, operation
from jupyter_ext.notebooks.bindings import KERNEL


class TrustBody(Body):
    """The body of a request to trust a folder. The notebook in the query selects the folder."""

    trust: Literal[True] = True


def folder_to_json(folder: TrustedFolder) -> dict[str, Any]:
    return {"path": str(folder.path), "since": folder.since, "files": sorted(folder.files)}


class TrustHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Trust, query=PLACE, errors=(404,))
    async def get(self) -> None:
        """List the trusted folders.

        ``trusted`` says whether the notebook's folder is trusted. Only a person gets the list ``folders``.
        """
        folder, _ = await self._folder(required=False)
        trust = self.services.runtime.trust
        folders = await asyncio.to_thread(trust.folders) if self.caller.kernel is None else []
        is_trusted = await asyncio.to_thread(trust.trusts, folder)
        path = str(folder) if folder else None
        self.reply({"folder": path, "trusted": is_trusted, "folders": [folder_to_json(folder) for folder in folders]})

    @guard("write")
    @operation(
        shapes.Folder, body=TrustBody, query=PLACE, also={202: shapes.Pending}, errors=(404,), conditions=NOTEBOOK_NAMED
    )
    async def post(self) -> None:
        """Trust the folder of a notebook.

        If a kernel sends the request, a person must confirm it in the browser (202).
        """
        self.parse(TrustBody)
        folder, place = await self._folder()
        assert folder is not None
        kernel = self.caller.kernel
        if kernel is not None:
            key = SessionKey(kernel.namespace, "trust")
            bind = self.services.bind_requests.add(kernel.id, key, place, folder=str(folder))
            self.reply(self.services.bind_requests.pending(bind), 202)
            return
        self.reply(folder_to_json(await asyncio.to_thread(self.services.runtime.trust.add, folder)))

    @guard("write")
    @operation(shapes.TrustRemoved, query=PLACE, errors=(404,), conditions=NOTEBOOK_NAMED)
    async def delete(self) -> None:
        """Remove the folder of a notebook from the trusted folders.

        This needs no confirmation.
        """
        folder, _ = await self._folder()
        assert folder is not None
        self.reply(
            {"folder": str(folder), "removed": await asyncio.to_thread(self.services.runtime.trust.remove, folder)}
        )

    async def _folder(self, *, required: bool = True) -> tuple[Path | None, str]:
        """Return (directory of the notebook that the request names, path of that notebook). If it names none, return
        (None, ""), or raise InvalidRequest if a notebook is ``required``."""
        place = await self.find_queried_place()
        notebook = "" if place is None or place.startswith(KERNEL) else place
        if not notebook and required:
            raise InvalidRequest("The request does not name the notebook whose folder to trust.", hint=WHICH_NOTEBOOK)
        folder = self.services.notebooks.directory(notebook) if notebook else None
        if folder is not None and not folder.is_relative_to(self.services.notebooks.root):
            raise Forbidden("The folder is not below the root directory of this server.")
        return folder, notebook
