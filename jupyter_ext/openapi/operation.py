"""What a verb of a handler promises: said beside it, read by ``document``; it changes nothing of what the verb does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field

V = TypeVar("V", bound=Callable[..., Awaitable[None]])
MARK = "__operation__"
Count = Annotated[int, Field(ge=0, lt=10**15)]
"""What ``AgentHandler.number`` reads."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """``kind`` is a type that pydantic makes a schema of. ``place``: query or header."""

    name: str
    says: str
    kind: Any = str
    required: bool = False
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Raw:
    """A body or an answer that is not JSON of a model: bytes of one of these media types. ``schema`` instead of plain
    bytes, such as the fields of a form."""

    media: tuple[str, ...]
    schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """``reply`` is a type, the ``package.module:Name`` of one that is imported for the document alone, a ``Raw``, or
    None for no body; where it ``streams``, the reply may be server-sent events instead. ``also`` are replies with other
    statuses below 400, ``errors`` the statuses of refusals beside those that every route may answer."""

    says: str
    reply: Any = None
    status: int = 200
    body: Any = None
    query: tuple[Parameter, ...] = ()
    also: Mapping[int, Any] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    streams: bool = False


def operation(
    says: str,
    reply: Any = None,
    *,
    status: int = 200,
    body: Any = None,
    query: tuple[Parameter, ...] = (),
    also: Mapping[int, Any] | None = None,
    errors: tuple[int, ...] = (),
    streams: bool = False,
) -> Callable[[V], V]:
    """Below ``guarded``, whose wrapper carries the mark on."""
    told = Operation(says, reply, status, body, query, also or {}, errors, streams)

    def mark(method: V) -> V:
        setattr(method, MARK, told)
        return method

    return mark


def operation_of(method: Any) -> Operation | None:
    return cast("Operation | None", getattr(method, MARK, None))


EVENTS = Raw(("text/event-stream",))
KERNEL = Parameter("kernel", "The kernel whose notebook is meant; a kernel that asks means its own.")
PATH = Parameter("path", "The notebook that is meant, by its path below the server's root.")
PLACE = (KERNEL, PATH)
SESSION = Parameter("session", "The session in which to look; without it all of the caller's.")
BRANCH = Parameter("branch", "Another branch than the current one.")
IF_MATCH = Parameter(
    "If-Match", "The ETag of the session as it was seen; 409 when it has changed since.", place="header"
)


def limit(default: int, most: int) -> Parameter:
    return Parameter("limit", f"How many at most; {default} if it is not said or 0, never more than {most}.", Count)
