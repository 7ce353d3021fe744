"""Defines every error that a caller can receive. Each is named by its cause.

    AgentKernelError
    ├── InvalidRequest            the request contradicts itself or cannot be read
    │   ├── FileTooLarge          the file is larger than this server accepts
    │   ├── RequestTooLarge       the request has more text than this server accepts
    │   └── Unprocessable         the request is well formed, but no part of it can be carried out
    ├── Forbidden                 the caller may not do this
    │   ├── LocalOnly             the action would connect to another machine
    │   ├── Unauthenticated       the request has no credential that this server knows
    │   └── TokenInvalid          the token is unknown, revoked or expired
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── TurnNotFound
    │   ├── BranchNotFound
    │   ├── UnknownModel
    │   ├── FileNotFound
    │   ├── FileGone              the file is known, but its bytes are not stored here (any more)
    │   └── FileNotProduced       the file was requested, and no tool wrote it
    ├── Conflict
    │   ├── SessionBusy           another turn of this session is running
    │   ├── SequenceConflict      another writer appended first
    │   ├── LeaseLost             this process may no longer write to the turn
    │   ├── KeyReused             an idempotency key arrived with a different request
    │   └── TurnStopped           the turn was stopped before its answer was complete
    ├── TooManyRequests           a rate limit or a concurrency limit of one user is reached
    │   └── BudgetSpent           the tokens of an hour or a day are used up
    ├── QuotaExceeded             the namespace may not store more
    ├── EngineError
    │   ├── ModelMissing          the model is in the catalog, but not on this machine yet
    │   ├── ModelBroken           wrong hash, truncated, or not a model
    │   ├── ModelUnsupported      no backend of this server can run the model
    │   ├── OutOfMemory           too little free memory to load the model beside the user's programs
    │   ├── EngineCrashed         the worker process ended
    │   ├── EngineUnreachable     the model server does not answer
    │   ├── UpstreamFailed        the model server answers with an error
    │   ├── EngineBusy            too many requests wait for the engine already
    │   ├── OutputInvalid         a complete answer that does not match the requested format
    │   └── ContextOverflow       more tokens than the model can hold
    ├── PullFailed                a model download failed
    ├── FetchFailed               a web page or a remote file could not be fetched
    ├── ServerUnreachable         the client's server does not answer, or is not running
    ├── ServerStopping            the server is shutting down and starts no more turns
    ├── HubUnavailable            the JupyterHub that knows the users does not answer
    ├── StoreError
    │   ├── StoreFull             no space left on the disk
    │   └── StoreCorrupt          the file was not written by this version, or is damaged
    └── SandboxUnavailable        a required isolation layer is missing on this machine

The code of an error is its class name in snake case; it is the same in Python, in events and over HTTP. HTTP status
codes are mapped in one place (``jupyter_ext.api.http.error_status``), never here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

DIRECTORIES = re.compile(r"(?<![\w/:\\])(?:[A-Za-z]:)?(?:[/\\][^\s/\\]+)+[/\\]")
"""Matches the directories in an absolute path, as far as their names contain no space."""


class AgentKernelError(Exception):
    """Base class of all errors. ``message`` says what happened, ``hint`` what to do next, and ``details`` holds data
    for programs."""

    request_id = ""
    """Id of the HTTP request that the server refused, as it appears in the server's log."""

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    @property
    def code(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """Return ``{code, message, hint, details}``, the form in which clients receive an error."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidRequest(AgentKernelError): ...


def refuse_fields(names: Sequence[str], who: str, hint: str = "") -> None:
    """Raise InvalidRequest if ``names`` is not empty. These are the request fields that ``who``, for example an engine,
    does not support."""
    if names:
        raise InvalidRequest(
            f"The request has fields that {who} does not support: {', '.join(names)}.",
            hint=hint,
            details={"param": names[0], "refused": [*names]},
        )


class FileTooLarge(InvalidRequest): ...


class RequestTooLarge(InvalidRequest): ...


class Unprocessable(InvalidRequest): ...


class Forbidden(AgentKernelError): ...


class LocalOnly(Forbidden): ...


class Unauthenticated(Forbidden): ...


class TokenInvalid(Forbidden): ...


class NotFound(AgentKernelError): ...


class SessionNotFound(NotFound): ...


class TurnNotFound(NotFound): ...


class BranchNotFound(NotFound): ...


class UnknownModel(NotFound): ...


class FileNotFound(NotFound): ...


class FileGone(NotFound): ...


class FileNotProduced(NotFound): ...


class Conflict(AgentKernelError): ...


class SessionBusy(Conflict): ...


class SequenceConflict(Conflict): ...


class LeaseLost(Conflict): ...


class KeyReused(Conflict): ...


class TurnStopped(Conflict): ...


class TooManyRequests(AgentKernelError):
    """A rate limit or a concurrency limit of one user is reached.

    ``details`` hold the ``limit`` (the name of its setting), how much is ``allowed`` and ``used``, and
    ``retry_after_s``.
    """


class BudgetSpent(TooManyRequests): ...


class QuotaExceeded(AgentKernelError): ...


class EngineError(AgentKernelError): ...


class ModelMissing(EngineError): ...


class ModelBroken(EngineError): ...


class ModelUnsupported(EngineError): ...


class OutOfMemory(EngineError): ...


class EngineCrashed(EngineError): ...


class EngineUnreachable(EngineError): ...


class UpstreamFailed(EngineError):
    """The model server answered with an error; ``details`` hold its HTTP ``status`` and the ``host``."""


class EngineBusy(EngineError):
    """Too many requests wait for the engine; ``details`` may hold ``retry_after_s``."""


class OutputInvalid(EngineError):
    """The answer does not match the requested format; ``details`` hold its ``text`` and the ``reason``."""


class ContextOverflow(EngineError): ...


class PullFailed(AgentKernelError): ...


class FetchFailed(AgentKernelError): ...


class ServerUnreachable(AgentKernelError): ...


class ServerStopping(AgentKernelError): ...


class HubUnavailable(AgentKernelError): ...


class StoreError(AgentKernelError):
    """The message names the file of the store with its directory; clients receive the name of the file alone."""

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"message": hide_directories(self.message), "hint": hide_directories(self.hint)}


def client_text(error: BaseException) -> str:
    """Return the text of an error in the form that clients receive: without directories."""
    return hide_directories(str(error)) if isinstance(error, StoreError) else str(error)


def hide_directories(text: str) -> str:
    """Return the text, in which each absolute path is replaced by an ellipsis and its last part."""
    return DIRECTORIES.sub("…/", text)


class StoreFull(StoreError): ...


class StoreCorrupt(StoreError): ...


class SandboxUnavailable(AgentKernelError): ...


def _tree(root: type[AgentKernelError]) -> dict[str, type[AgentKernelError]]:
    classes = {root("").code: root}
    for child in root.__subclasses__():
        classes |= _tree(child)
    return classes


BY_CODE = _tree(AgentKernelError)


def from_json(body: Mapping[str, Any]) -> AgentKernelError:
    """Build the error from the result of its ``to_json``. An unknown code becomes a plain ``AgentKernelError``."""
    kind = BY_CODE.get(str(body.get("code")), AgentKernelError)
    return kind(str(body.get("message", "")), hint=str(body.get("hint", "")), details=body.get("details") or {})
