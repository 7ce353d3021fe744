"""Routes that export a session as a document, import a document as a session, and clear the tool outputs of cells."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from tornado import web

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.sessions.export.import_export import FORMATS, ImportResult, export_session, import_session, preview
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.http.json_body import MAX_BODY
from jupyter_ext.api.native.request_schemas import Body, Id
from jupyter_ext.api.native.sessions import session_to_json
from jupyter_ext.api.schemas import sessions as shapes
from jupyter_ext.api.schemas.operation import ANY_BYTES, BRANCH, PLACE, Count, Parameter, Raw, operation
from jupyter_ext.notebooks.bindings import KERNEL

ONE_DOCUMENT = "A download must be one document, and the format markdown-files consists of several files."
DOCUMENTS = [name for name in FORMATS if name != "markdown-files"]
"""The formats that consist of one document. ``markdown-files`` consists of several files, so it is not among them."""
FORMAT = Annotated[str, Field(json_schema_extra={"enum": list[Any](DOCUMENTS)})]
Imports = Literal["agent-kernel", "jsonl", "openai", "mistralrs"]
MEDIA = ("application/json", "application/jsonl", "text/markdown", "application/x-ipynb+json")


class ClearOutputsBody(Body):
    """The cells whose outputs are cleared, by their ids; none: the cells whose outputs are missing in the saved
    notebook."""

    cells: Annotated[list[Id], Field(default_factory=list, max_length=5000)]


class ExportHandler(AgentHandler):
    def compute_etag(self) -> str | None:
        """Return None: tornado's own ETag would be a hash over the whole document."""
        return None

    @guard("read")
    @operation(
        Raw(MEDIA),
        query=(Parameter("format", f"One of {', '.join(DOCUMENTS)}.", FORMAT), BRANCH),
        errors=(404,),
        conditions="branch must name a branch of the session, and the format must contain only one branch.",
    )
    async def get(self, session_id: str) -> None:
        """Export a session as a document.

        The document is sent as a download, so that a browser never runs output of a model in this origin. The header
        ``X-Agent-Left-Out`` counts what the format cannot represent.
        """
        session = await self.services.access.session(self.caller, session_id)
        branch = self.get_argument("branch", None)
        written = await export_session(
            self.services.runtime.store, session.key, self.get_argument("format", "agent-kernel"), branch=branch
        )
        if written.files:
            raise InvalidRequest(ONE_DOCUMENT, hint="Use ?format=markdown instead.")
        self.set_header("Content-Disposition", f'attachment; filename="session{written.suffix}"')
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Agent-Left-Out", json.dumps(dict(written.left_out)))
        self.finish(written.document, set_content_type=written.media_type)


class ImportingHandler(AgentHandler):
    """Base class of the handlers that import a document as a new session."""

    async def import_document(
        self, document: bytes, files: Mapping[str, bytes], format: str | None = None
    ) -> ImportResult:
        store, redactor = self.services.runtime.store, self.services.runtime.turn_writer.redactor
        namespace = self.caller.namespace
        return await import_session(store, namespace, document, format=format, files=files, redactor=redactor)

    async def reply_imported(self, imported: ImportResult, place: str | None) -> None:
        """Bind the notebook ``place``, if there is one, to the new session, and reply with the session."""
        key = imported.session.key
        if self.caller.kernel is not None:
            self.caller.kernel.sessions.add(key.id)
        if place is not None:
            await self.services.notebooks.bind(key, place)
        bound, summary = place is not None, dataclasses.asdict(imported.preview)
        self.reply({**session_to_json(imported.session), "bound": bound, "preview": summary}, 201)


class ImportHandler(ImportingHandler):
    @guard("write")
    @operation(
        shapes.Imported,
        status=201,
        body=ANY_BYTES,
        also={200: shapes.Previewed},
        query=(
            Parameter("format", "The format of the document; detected if it is omitted.", Imports),
            Parameter("preview", "1: only describe what would be imported.", Count),
            Parameter("beside", "1: import the sidecar beside the notebook instead of the body.", Count),
            Parameter("bind", "1: bind the notebook to the new session.", Count),
            *PLACE,
        ),
        errors=(404, 409, 507),
        conditions="The body must be a document in one of the formats; beside and bind need a notebook.",
    )
    async def post(self) -> None:
        """Import a document as a session.

        The body is the document.
        """
        place = await self.find_queried_place()
        document, files = await self._document(place)
        format = self.get_argument("format", None)
        async with self.services.import_lock:
            if self.number("preview"):
                self.reply({"preview": dataclasses.asdict(await preview(document, format=format, files=files))})
                return
            imported = await self.import_document(document, files, format)
        await self.reply_imported(imported, place if self.number("bind") else None)

    async def _document(self, place: str | None) -> tuple[bytes, dict[str, bytes]]:
        if not self.number("beside"):
            if len(self.request.body) > MAX_BODY:
                raise web.HTTPError(413, f"A document can have at most {MAX_BODY >> 20} MiB.")
            return self.request.body, {}
        if place is None or place.startswith(KERNEL):
            raise InvalidRequest("Name the notebook (path) whose sidecar is to be imported.")
        document = await self.services.sidecar_imports.read_document(place)
        if document is None:
            raise NotFound("There is no sidecar with a conversation beside this notebook.")
        return document


class ClearOutputsHandler(AgentHandler):
    @guard("write")
    @operation(shapes.Cleared, body=ClearOutputsBody, query=PLACE, errors=(404, 409))
    async def post(self, session_id: str) -> None:
        """Delete the tool outputs of cells from a session.

        Without ``cells``, the cells whose outputs were cleared in the saved notebook are used.
        """
        body = self.parse(ClearOutputsBody)
        session = await self.services.access.session(self.caller, session_id)
        place = await self.find_queried_place()
        cells = body.cells
        if not cells and place is not None:
            cells = await self.services.cleared_outputs.find_cells(session.key, place)
        changed = await self.services.cleared_outputs.clear(session.key, cells)
        self.services.notifications.on_session_changed(session.key, "outputs")
        self.reply({"cells": len(cells), "results": changed})
