"""Converts the body of ``messages`` into a request for a turn. The functions have no side effects."""

from __future__ import annotations

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import OutputFormat, Sampling
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.api.anthropic.codec import Thinking
from jupyter_ext.api.anthropic.conversation import AnthropicConversation
from jupyter_ext.api.anthropic.request import MessagesBody
from jupyter_ext.api.anthropic.tools import tools_of
from jupyter_ext.api.dialects.request_extensions import require_file_tools
from jupyter_ext.turns.dialect_request import AGENT, DialectRequest

CODE_HINT = "Use the model agent/NAME, or a tool code_execution."


def build(
    body: MessagesBody, conversation: AnthropicConversation, *, session: str = "", after: str = ""
) -> DialectRequest:
    """Return the request for a turn. ``session`` is the session of the request's thread, ``after`` the turn in it that
    the request follows. Raises InvalidRequest for contradictory fields."""
    tools = tools_of(body, agent=body.model.startswith(AGENT))
    groups = (*tools.groups, *(("files",) if conversation.files and not tools.silent else ()))
    whole = DialectRequest(
        body.model,
        TurnRequest(
            messages=conversation.messages,
            permission=body.permission,
            sampling=sampling(body),
            max_tool_rounds=0 if tools.silent else body.max_tool_rounds,
            tool_choice=tools.choice,
            parallel_calls=tools.parallel,
            output=_output(body),
            outputs=tuple(file.wanted for file in body.files or ()),
            web=tools.web,
            skills=tools.skills,
            functions=tools.functions,
            after=after,
        ),
        groups=groups,
        session=session or body.session_id or body.container_id,
        files=conversation.files,
        streams=bool(body.stream),
        own_messages=conversation.spoken if conversation.spoken != conversation.messages else (),
    )
    return require_file_tools(whole, InvalidRequest, hint=CODE_HINT, details=None)


def sampling(body: MessagesBody) -> Sampling:
    """Return the sampling options. A ``top_p`` of 0 always selects the most likely token; a ``top_k`` of 0 means no
    limit."""
    greedy = body.top_p == 0
    return Sampling(
        temperature=body.temperature,
        top_p=None if greedy else body.top_p,
        top_k=1 if greedy else body.top_k or None,
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences or ()),
    )


def thinking(body: MessagesBody) -> Thinking:
    """Return how the response shows the model's reasoning. This has no effect on whether the model reasons."""
    option = body.thinking
    if option is None:
        return "shown"
    return "hidden" if option.type == "disabled" else "omitted" if option.display == "omitted" else "shown"


def _output(body: MessagesBody) -> OutputFormat | None:
    return OutputFormat("json_schema", body.format.schema_) if body.format else None
