"""Routes that describe the sidecar beside a notebook (NAME.agent.json), and import the conversation in it if the store
does not have it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export.import_export import preview
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.native.import_export import ImportingHandler
from jupyter_ext.api.native.request_schemas import Body
from jupyter_ext.api.schemas import server as shapes
from jupyter_ext.api.schemas.operation import NOTEBOOK_NAMED, PLACE, WHICH_NOTEBOOK, operation
from jupyter_ext.notebooks.bindings import KERNEL
from jupyter_ext.notebooks.sidecar_import import ARRIVING, sidecar_note

MODELS = 8
"""The maximum number of models that are named for a conversation."""


class ArrivalBody(Body):
    """The body of a request to import the sidecar of a notebook.

    ``sha256`` is the hash of the document that the user was shown. A different document is refused.
    """

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BesideHandler(ImportingHandler):
    @guard("read")
    @operation(shapes.Beside, query=PLACE, errors=(404,), conditions=NOTEBOOK_NAMED)
    async def get(self) -> None:
        """Describe the sidecar beside a notebook.

        ``arrival`` describes the conversation that POST would import; it is null if there is none to import.
        """
        place = await self._place()
        sidecar = await self.services.sidecar_imports.inspect(self.caller.namespace, place)
        file = self.services.sidecars.file(place)
        saved = await self.services.sidecars.stat(place)
        name = file.main.name if file else ""
        self.reply(
            {
                "name": name,
                "kind": sidecar.kind,
                "told": sidecar_note(sidecar, name),
                "problem": self.services.sidecars.problem(self.caller.namespace, place),
                "saved": saved.time if saved else None,
                "size": saved.size if saved else 0,
                "arrival": await self._arrival(place, sidecar.transcript) if sidecar.kind in ARRIVING else None,
            }
        )

    @guard("write")
    @operation(
        shapes.Arrived, status=201, body=ArrivalBody, query=PLACE, errors=(404, 409, 507), conditions=NOTEBOOK_NAMED
    )
    async def post(self) -> None:
        """Import the conversation in the sidecar beside a notebook.

        The conversation becomes a new session, to which the notebook is bound. The notebook's former session does not
        change.
        """
        place, confirmed_hash = await self._place(), self.parse(ArrivalBody).sha256
        async with self.services.import_lock:
            document, files = await self._document(place)
            if hashlib.sha256(document).hexdigest() != confirmed_hash:
                raise Conflict(
                    "The notebook's conversation file has changed since it was read, so it was not imported.",
                    hint="Read it again with GET beside, and send the new sha256.",
                )
            if (await self.services.sidecar_imports.inspect(self.caller.namespace, place)).kind not in ARRIVING:
                raise Conflict("The store already has this conversation, so it was not imported.")
            imported = await self.import_document(document, files)
        await self.reply_imported(imported, place)

    async def _place(self) -> str:
        place = await self.find_queried_place()
        if place is None or place.startswith(KERNEL):
            raise InvalidRequest("The request does not name a notebook.", hint=WHICH_NOTEBOOK)
        return place

    async def _document(self, place: str) -> tuple[bytes, dict[str, bytes]]:
        document = await self.services.sidecar_imports.read_document(place)
        if document is None:
            raise Conflict("There is no conversation file beside this notebook any more.")
        return document

    async def _arrival(self, place: str, transcript: Transcript | None) -> Mapping[str, Any] | None:
        """Describe the conversation that an import would create, or give the reason why it cannot be imported. The
        description and ``sha256`` are those of the same bytes, so that the user confirms exactly what is imported."""
        document, files = await self._document(place)
        digest = hashlib.sha256(document).hexdigest()
        try:
            seen = dataclasses.asdict(await preview(document, files=files))
        except InvalidRequest as error:
            return {"sha256": digest, "refused": error.message}
        turns = transcript.turns if transcript else ()
        models = list(dict.fromkeys(turn.model for turn in turns if turn.model))
        session = transcript.session if transcript else None
        times = {"created": session.created, "updated": session.updated} if session else {}
        return {**seen, **times, "sha256": digest, "refused": "", "models": models[:MODELS]}
