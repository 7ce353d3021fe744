"""Checks requests that continue an answer (``EngineRequest.continues``)."""

from __future__ import annotations

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import EngineRequest


def beginning_of(request: EngineRequest) -> str:
    """Return the text that the answer continues; empty if the request does not continue one. Raises InvalidRequest if
    the last message is not a text of the assistant, or if ``can_continue`` is false."""
    if not request.continues:
        return ""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or last.calls or not last.text:
        raise InvalidRequest("An answer can be continued only if the last message is a text of the assistant.")
    if not can_continue(request):
        raise InvalidRequest("An answer with an output format or a required call cannot be continued.")
    return last.text


def can_continue(request: EngineRequest) -> bool:
    """Return whether the answer to ``request`` can be continued in the middle. It cannot if the request has an output
    format or requires a call: the engine enforces the form of the whole answer from its first token, and a rest has
    another form."""
    return request.output is None and request.tool_choice in ("auto", "none")
