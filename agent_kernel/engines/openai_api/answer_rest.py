"""Requests the rest of an answer whose stream has broken off, and joins it to the text that has arrived.

The protocol is that of vLLM and SGLang: the text is sent as the last message, of the assistant, with the field
``continue_final_message``. A server that does not know the field would answer with a text that does not fit. Therefore
only servers that announce it are asked (``announces_continuation``), and a rest that repeats the beginning of the
answer is refused (``TextSeam``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.messages import assistant
from agent_kernel.core.protocols import EngineRequest
from agent_kernel.engines.openai_api.request import CONTINUE
from agent_kernel.engines.openai_api.response_builder import ResponseBuilder

CONTINUING_SERVERS = frozenset({"vllm", "sglang"})
"""Values of ``owned_by`` in the lists of models of servers that continue an answer. A server of agent-kernel has an
entry in the model's ``capabilities`` instead."""


def announces_continuation(listed_model: Mapping[str, Any]) -> bool:
    """Return whether the server says, in its entry ``listed_model`` of the list of models, that it continues
    answers."""
    capabilities = listed_model.get("capabilities")
    if isinstance(capabilities, Mapping) and capabilities.get(CONTINUE) is True:
        return True
    return listed_model.get("owned_by") in CONTINUING_SERVERS


def has_rest(request: EngineRequest, answer: ResponseBuilder) -> bool:
    """Return whether the rest of ``answer``, which has broken off, can be requested. The incomplete calls of the answer
    do not matter, because no call has run yet. Reasoning that has arrived cannot be sent back as the beginning of an
    answer. A text with a required form cannot be continued: servers enforce the form from the first token."""
    has_form = request.output is not None or bool(request.required_tools())
    return not answer.has_reasoned and not (answer.sent_back and has_form)


def rest_request(request: EngineRequest, answer: ResponseBuilder) -> EngineRequest:
    """Return the request for the rest of ``answer``: ``request`` itself if no text has arrived. The limit of tokens is
    lowered by those that have arrived, as far as they can be counted."""
    text = answer.sent_back
    if not text:
        return request
    messages, limit = request.messages, request.sampling.max_tokens
    if request.continues:
        messages, text = messages[:-1], request.beginning + text
    sampling = request.sampling
    if limit is not None:
        sampling = replace(sampling, max_tokens=max(1, limit - answer.received_tokens))
    return replace(request, messages=(*messages, assistant(text)), sampling=sampling, continues=True)
