"""The route that lists the tools that a model may call in a turn, where each call runs, and whether a person is
asked."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.protocols import ToolSpec
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.permissions.gate import to_json
from agent_kernel.tools.code.python import SANDBOXED
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.available_models import calls_only_python
from jupyter_ext.api.native.request_schemas import ToolsBody
from jupyter_ext.api.schemas.operation import operation
from jupyter_ext.api.schemas.turns import Tools
from jupyter_ext.notebooks.bindings import KERNEL

PYTHON = SANDBOXED.name
MAX_NAMES = 10
CALLS_ONLY = (
    "{model} writes Python in place of calls and never calls {others}. A model that calls functions can use them, such "
    "as qwen3-4b: run agent-kernel model pull qwen3-4b, and choose it for the conversation. With the "
    'setting tool_protocol = "auto", {model} tries to call them too, and makes more mistakes.'
)
"""The note if the model of the conversation calls only Python."""


class ToolsHandler(AgentHandler):
    @guard("read")
    @operation(Tools, body=ToolsBody, errors=(404, 409))
    async def post(self) -> None:
        """List the tools that a model may call in a turn with this body.

        The list includes the functions of the client. ``called`` is false for tools that the model of the conversation
        never calls by itself. No turn is started and no model is called.
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
        model = await self._model_with_python_only(bound)
        others = [spec.name for spec in specs if model and spec.name != PYTHON]
        notes += [CALLS_ONLY.format(model=model, others=_join_with_or(others))] if others else []
        tools = [_tool_to_json(spec, to_json(gate.rules.ruling(spec, body.permission))) for spec in specs]
        self.reply({"tools": [{"called": tool["name"] not in others, **tool} for tool in tools], "notes": notes})

    async def _model_with_python_only(self, session: SessionKey | None) -> str:
        """Return the name of the model of ``session`` if the tool python is the only one that the model calls; with
        None, the name of the model that a new session would have. Return "" if the model calls other tools too, or
        cannot be used at the moment."""
        try:
            name = await self.services.access.engine(self.caller, session) if session else ""
            engine = self.services.runtime.engines.get(name)
        except AgentKernelError:
            return ""
        return engine.info().model if calls_only_python(engine) else ""


def _join_with_or(names: list[str]) -> str:
    """List the names with "or" before the last one. Of more than MAX_NAMES names, list the first ones and the number of
    the others."""
    listed = names if len(names) <= MAX_NAMES else [*names[:MAX_NAMES], f"{len(names) - MAX_NAMES} others"]
    return " or ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


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
