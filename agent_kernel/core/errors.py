"""Every error a caller can meet, named by its cause.

    AgentKernelError
    ├── InvalidRequest            the caller's words do not make sense
    │   ├── FileTooLarge          more bytes than a file may have here
    │   └── Unprocessable         it makes sense, and nothing of this request could do it
    ├── Forbidden                 the caller may not do this
    │   ├── LocalOnly             it would leave this machine
    │   ├── Unauthenticated       the request has no credential that this server knows
    │   └── TokenInvalid          unknown, revoked or expired
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── TurnNotFound
    │   ├── BranchNotFound
    │   ├── UnknownModel
    │   ├── FileNotFound
    │   ├── FileGone              it is known, its bytes are not here (any more)
    │   └── FileNotProduced       it was asked for, and no tool made it
    ├── Conflict
    │   ├── SessionBusy           another turn of this session is running
    │   ├── SequenceConflict      somebody appended first
    │   ├── LeaseLost             this process may no longer write to the turn
    │   ├── KeyReused             an idempotency key came with another request
    │   └── TurnStopped           somebody stopped the turn before its answer was whole
    ├── TooManyRequests           more than one user may ask for at a time
    │   └── BudgetSpent           the tokens of an hour or a day are used up
    ├── QuotaExceeded             the namespace may hold no more
    ├── EngineError
    │   ├── ModelMissing          in the catalog, not on this machine yet
    │   ├── ModelBroken           wrong hash, truncated, not a model
    │   ├── ModelUnsupported      a model that nothing here can run
    │   ├── OutOfMemory           less memory than the model needs beside the person's programs
    │   ├── EngineCrashed         the worker process ended
    │   ├── EngineUnreachable     the server of a model does not answer
    │   ├── UpstreamFailed        the server of a model answers with an error
    │   ├── EngineBusy            too many wait for it already
    │   ├── OutputInvalid         a whole answer that does not fit the format asked for
    │   └── ContextOverflow       more tokens than the model can hold
    ├── PullFailed                a download did not end well
    ├── FetchFailed               a page or a file of the web can not be had
    ├── ServerUnreachable         a client's server does not answer, or there is none
    ├── ServerStopping            this server begins no more turns
    ├── StoreError
    │   ├── StoreFull             no space left on the disk
    │   └── StoreCorrupt          the file is not what this version wrote
    └── SandboxUnavailable        a required isolation layer is missing here

The code of an error is its class name in snake case: it is the same in Python, in events and over HTTP. HTTP status
codes are mapped in one place (``jupyter_ext.api.http.handler``), never here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class AgentKernelError(Exception):
    """What happened (``message``), what to do next (``hint``), and facts for programs (``details``)."""

    request_id = ""
    """Of the request that a server refused, as its log names it."""

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    @property
    def code(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """``{code, message, hint, details}``, the shape on every wire."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidRequest(AgentKernelError): ...


class FileTooLarge(InvalidRequest): ...


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
    """``details``: the ``limit`` by the name of its setting, how much is ``allowed`` and ``used``, and
    ``retry_after_s``."""


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
    """``details`` have the HTTP ``status`` that the ``host`` answered with."""


class EngineBusy(EngineError):
    """``details`` may have ``retry_after_s``."""


class OutputInvalid(EngineError):
    """``details``: the ``text`` of the answer and the ``reason``."""


class ContextOverflow(EngineError): ...


class PullFailed(AgentKernelError): ...


class FetchFailed(AgentKernelError): ...


class ServerUnreachable(AgentKernelError): ...


class ServerStopping(AgentKernelError): ...


class StoreError(AgentKernelError): ...


class StoreFull(StoreError): ...


class StoreCorrupt(StoreError): ...


class SandboxUnavailable(AgentKernelError): ...


def _tree(root: type[AgentKernelError]) -> dict[str, type[AgentKernelError]]:
    found = {root("").code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_CODE = _tree(AgentKernelError)


def from_json(body: Mapping[str, Any]) -> AgentKernelError:
    """The inverse of ``to_json``; an unknown code becomes a plain ``AgentKernelError``."""
    kind = BY_CODE.get(str(body.get("code")), AgentKernelError)
    return kind(str(body.get("message", "")), hint=str(body.get("hint", "")), details=body.get("details") or {})
