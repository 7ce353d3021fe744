"""The route that lists the tools that a model may call in a turn, where each call runs, and whether a person is
asked."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent_kernel.core.protocols import ToolSpec
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.permissions.policy import to_json
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import ToolsBody
from jupyter_ext.api.schemas.operation import operation
from jupyter_ext.api.schemas.turns import Tools
from jupyter_ext.notebooks.bindings import KERNEL


class ToolsHandler(AgentHandler):
    @guard("read")
    @operation(Tools, body=ToolsBody, errors=(404, 409))
    async def post(self) -> None:
        """List the tools that a model may call in a turn with this body.

        The list includes the functions of the client. No turn is started and no model is called.
        """
        body, services = self.parse(ToolsBody), self.services
        kernel = services.access.kernel(self.caller, body.kernel)
        place = await services.notebooks.place(kernel.id) if kernel else ""
        bound = await services.notebooks.bound_session(self.caller.namespace, place) if place else None
        request, notes = body.request(), list[str]()
        if kernel:
            by_kernel = self.caller.kernel is not None
            served = services.page_tools.tools(self.caller.namespace, kernel.id, by_kernel=by_kernel)
            request = dataclasses.replace(request, client_tools=request.client_tools | served)
        specs = await services.runtime.list_tools(
            bound or SessionKey(self.caller.namespace, new_id("session")),
            request,
            notes.append,
            notebook_dir=services.notebooks.directory(place) if place and not place.startswith(KERNEL) else None,
            notebook=self.services.attached_notebooks.of_turn(kernel, place, by_user=self.caller.kernel is None),
        )
        gate = services.runtime.gate(body.request())
        self.reply(
            {
                "tools": [_tool_to_json(spec, to_json(gate.rules.ruling(spec, body.permission))) for spec in specs],
                "notes": notes,
            }
        )


def _tool_to_json(spec: ToolSpec, ruling: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "label": spec.label or spec.name,
        "description": spec.description,
        "kind": spec.kind,
        "where": spec.where,
        "source": spec.source,
        **ruling,
    }
