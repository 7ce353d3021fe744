"""Types of server-sent events. Each describes the JSON that a ``data`` line of a stream contains."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from agent_kernel.core.events import EVENT_TYPES


class AgentToolCallProgress(TypedDict):
    """A call of a server tool starts or ends. ``data`` depends on its ``tool_type``."""

    type: Literal["agentic_tool_call_progress"]
    round: int
    tool_name: str
    phase: Literal["calling", "complete"]
    data: dict[str, Any]
    call_id: str


class AgentToolApprovalRequired(TypedDict):
    """A question for a person; the answer goes to ``agent/approvals/{approval_id}``."""

    type: Literal["agentic_tool_approval_required"]
    approval_id: str
    session_id: str
    round: int
    tool: dict[str, Any]
    arguments: dict[str, Any]
    code: str
    unseen: list[str]
    call_id: str
    shown: str


class PullEvent(TypedDict):
    """A step of a download. The last ``stage`` is ``done`` or ``failed``."""

    stage: str
    done: NotRequired[int | None]
    total: NotRequired[int | None]
    message: NotRequired[str]
    path: NotRequired[str | None]
    error: NotRequired[dict[str, Any]]


class InfillEvent(TypedDict):
    """The text of a completion so far. ``silence`` says why there is none: a turn uses the model, the model is not
    loaded, or it cannot fill in code. The last event of a completion that failed has ``error``."""

    text: str
    silence: Literal["", "busy", "unloaded", "unsupported"]
    error: NotRequired[dict[str, Any]]


def _turn_event(kind: str, body: type[Any]) -> Any:
    """Return the type of one event of a turn: the fields that all events have, with ``body`` as the type of ``data``.
    The type has the name of ``body``."""
    fields = {"seq": int, "turn": str, "session": str, "round": int, "time": float}
    typed_dict: Any = TypedDict
    return typed_dict(f"{body.__name__}Event", {**fields, "type": Literal[kind], "data": body})


_KINDS: Any = reduce(or_, (_turn_event(kind, body) for kind, body in EVENT_TYPES.items()))
TurnEvent = TypeAliasType("TurnEvent", Annotated[_KINDS, Field(discriminator="type")])
"""One event of a turn, as in ``agent_kernel.core.events``."""
