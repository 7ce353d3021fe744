"""Describes one method of a handler. The OpenAPI document is generated from these descriptions; they have no effect on
what the method does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field

from agent_kernel.core.session import MAX_ID

V = TypeVar("V", bound=Callable[..., Awaitable[None]])
MARK = "__operation__"
ID_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""The characters that ``valid_id`` accepts."""
SessionId = Annotated[str, Field(max_length=MAX_ID, json_schema_extra={"pattern": f"^$|{ID_PATTERN}"})]
"""A session id in a query; empty means none."""
Count = Annotated[int, Field(ge=0, lt=10**15)]
"""The range of numbers that ``AgentHandler.number`` accepts."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header of a method; ``place`` is ``query`` or ``header``. ``says`` is its description, and
    ``kind`` its type, from which pydantic makes the schema."""

    name: str
    says: str
    kind: Any = str
    required: bool = False
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Raw:
    """A request or response body that is not JSON of a model: bytes of one of these media types. ``schema`` describes
    them if they have a structure, such as the fields of a form."""

    media: tuple[str, ...]
    schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """The description of a handler's method, used as a decorator. Put it below ``guard``, so that ``guard`` keeps the
    description. In the OpenAPI document, the first paragraph of the method's docstring is the summary, the rest is the
    description.

    ``reply`` is the type of the response body: a type, the ``package.module:Name`` of a type that is imported only for
    the document, a ``Raw``, or None for no body. ``streams`` are the types of the server-sent events that can take the
    place of the reply, given in the same way; each describes the JSON of one ``data`` line. ``also`` maps other
    statuses below 400 to their replies. ``errors`` are the statuses of errors in addition to those of every route.
    ``conditions`` says what a request must fulfil beyond its schemas; otherwise the status is 400.
    """

    reply: Any = None
    _: KW_ONLY
    status: int = 200
    body: Any = None
    query: tuple[Parameter, ...] = ()
    also: Mapping[int, Any] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    streams: tuple[Any, ...] = ()
    conditions: str = ""

    def __call__(self, method: V) -> V:
        setattr(method, MARK, self)
        return method


operation = Operation


def operation_of(method: Any) -> Operation | None:
    return cast("Operation | None", getattr(method, MARK, None))


NOTEBOOK_NAMED = "kernel or path must name a notebook, unless a kernel sends the request."
WHICH_NOTEBOOK = "Add the query parameter path (of a notebook) or kernel (an id) to the URL."
"""Hint of the error for a request that names neither a notebook nor a kernel."""
FITS = (
    "The fields must fit together: roles and their fields, calls and their results, tools and the tool choice. The "
    "content of a field must be valid beyond its type, for example base64."
)


def takes_json(method: Any) -> bool:
    """Return whether the body of this method is JSON that a model describes."""
    described = operation_of(method)
    return described is not None and described.body is not None and not isinstance(described.body, Raw)


BYTES: Mapping[str, Any] = {"type": "string", "format": "binary"}
ANY_BYTES = Raw(("application/octet-stream", "*/*"), BYTES)
TURN_EVENTS = ("jupyter_ext.api.schemas.events:TurnEvent",)
KERNEL = Parameter("kernel", "The id of the notebook's kernel. A kernel that sends the request means its own notebook.")
FOLDER = r"[^/\x00\\]*[^/\x00\\.][^/\x00\\]*/"
NOTEBOOK = Annotated[str, Field(json_schema_extra={"pattern": rf"^\s*(({FOLDER})*[^/\x00\\]*\.ipynb\s*)?$"})]
PATH = Parameter("path", "The path of the notebook below the server's root.", NOTEBOOK)
PLACE = (KERNEL, PATH)
SESSION = Parameter("session", "Search only this session; without it, all sessions of the caller.", SessionId)
BRANCH = Parameter("branch", "The name of a branch; without it, the current branch.")
IF_MATCH = Parameter(
    "If-Match",
    "The ETag of the session as the client has seen it, or *. 409 if the session has changed since then.",
    Annotated[str, Field(json_schema_extra={"pattern": r'^(\*|(W/)?"?[0-9]{1,15}"?)$'})],
    place="header",
)
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "For 24 hours, a repeated request with the same key starts no other turn: it gets the answer of the turn that the "
    "first request started. 409 for a different request.",
    Annotated[str, Field(json_schema_extra={"pattern": r"^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$"})],
    place="header",
)


def limit(default: int, most: int) -> Parameter:
    return Parameter(
        "limit", f"At most this many entries; {default} if it is missing or 0, never more than {most}.", Count
    )
