"""Copies variables between the user's kernel and the sandbox or a draft: into the sandbox with a turn, and from the
sandbox or a draft as a result.

A copy for the sandbox may be a pickle, because it is loaded in the jail. A copy from the sandbox or a draft is never a
pickle, because the model's code may have created it.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import io
import pickle
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.program_value import ProgramValue
from agent_kernel.sandbox.worker import variable_transfer

MAX_BYTES = 32 << 20
MAX_TOGETHER = 64 << 20
MAX_VALUE = 24 << 20
"""Limit in bytes of the value that a draft sends, so that it fits into one frame in base64."""
MAX_ITEMS = 1_000_000
"""Limit of items in nested containers; the size of larger containers is not measured further."""
SAFE = ("json", "npy", "arrow")
PANDAS = ("pandas.DataFrame", "pandas.Series")


class TooLarge(Exception):
    """Raised if a copy of the value would exceed the size limit."""


@dataclass(slots=True)
class CopiedVariables:
    """The copies of variables. ``variables`` has the format of the field of this name in a turn's request; ``left_out``
    maps the names of variables that cannot be copied to the reason."""

    variables: list[dict[str, str]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    size: int = 0


def copy_variables(names: Iterable[str], namespace: Mapping[str, Any]) -> CopiedVariables:
    """Copy as many variables as fit. Never raises; failures are in ``left_out``."""
    copies = CopiedVariables()
    for name in names:
        try:
            encoding, kind, data = encode_variable(name, namespace, min(MAX_BYTES, MAX_TOGETHER - copies.size))
        except TooLarge:
            size = f"{MAX_BYTES >> 20} MB each, {MAX_TOGETHER >> 20} MB together"
            copies.left_out[name] = f"it is too large ({size}); put it into a file beside the notebook"
        except Exception as error:  # noqa: BLE001  a person's object may raise anything when it is copied
            copies.left_out[name] = f"it cannot be copied ({type(error).__name__})"
        else:
            copies.size += len(data)
            copies.variables.append(
                {"name": name, "encoding": encoding, "data": base64.b64encode(data).decode(), "type": kind[:200]}
            )
    return copies


def encode_variable(name: str, namespace: Mapping[str, Any], max_bytes: int) -> tuple[str, str, bytes]:
    """Return a copy of the variable ``name`` as (encoding, type, data). If the copy would have more than ``max_bytes``
    bytes, raises TooLarge before the value is copied. Raises any exception that the value itself raises."""
    value = namespace[name]
    if _size(value) > max_bytes:
        raise TooLarge(name)
    kind = variable_transfer.type_of(value)
    if kind not in PANDAS or importlib.util.find_spec("pyarrow"):
        try:
            encoding, kind, data = variable_transfer.take(namespace, name)
        except variable_transfer.NotCopied:
            pass
        else:
            if len(data) > max_bytes:
                raise TooLarge(name)
            return encoding, kind, data
    target = _Bounded(max_bytes)
    pickle.dump(value, target, protocol=pickle.HIGHEST_PROTOCOL)
    return "pickle", kind, target.getvalue()


def decode_variable(name: str, encoding: str, kind: str, data: bytes) -> Any:
    """Return the value of a copy that the sandbox made. ``name`` is for error messages, ``kind`` the name of the
    value's type. Raises AgentError if the copy cannot be decoded. Never loads a pickle."""
    if encoding not in SAFE:
        raise AgentError(f"The copy of {name} has the encoding {encoding or 'unknown'}, which this kernel cannot read.")
    namespace: dict[str, Any] = {}
    try:
        variable_transfer.give(namespace, [{"name": name, "encoding": encoding, "data": data, "type": kind}])
    except variable_transfer.NotCopied as error:
        raise AgentError(f"The copy of {name} cannot be read in this kernel: {error.__cause__ or error}") from None
    return namespace[name]


def encode_draft_value(value: Any) -> dict[str, str]:
    """Return the copy of a value that a draft sends to its kernel. If the value is too large or cannot be copied
    without loss, only the name of its type is sent. Never raises."""
    try:
        kind = variable_transfer.type_of(value)
        if _size(value) <= MAX_VALUE and (kind not in PANDAS or importlib.util.find_spec("pyarrow")):
            encoding, kind, data = variable_transfer.take({"value": value}, "value")
            if len(data) <= MAX_VALUE:
                return {"type": kind, "encoding": encoding, "data": base64.b64encode(data).decode()}
    except Exception:  # noqa: BLE001  the value may raise anything when it is measured or copied
        kind = type(value).__qualname__
    return {"type": kind}


def decode_draft_value(body: Any) -> ProgramValue | None:
    """Decode a copy that ``encode_draft_value`` made. The draft is not trusted: returns None if ``body`` has another
    form."""
    if not isinstance(body, Mapping) or not all(isinstance(part, str) for part in body.values()):
        return None
    kind, encoding = body.get("type", ""), body.get("encoding", "")
    if not encoding:
        return ProgramValue(elsewhere=kind)
    try:
        data = base64.b64decode(body.get("data", ""), validate=True)
        return ProgramValue(decode_variable("The value", encoding, kind, data))
    except (AgentError, binascii.Error, ValueError):
        return ProgramValue(elsewhere=kind)


class _Bounded(io.BytesIO):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(memoryview(data).cast("B")) > self._most:
            raise TooLarge
        return super().write(data)


def _size(value: Any) -> int:
    """Estimate the size of a value in bytes without copying it. The estimate is never too high."""
    if variable_transfer.type_of(value) == "pandas.DataFrame":
        return int(value.memory_usage(index=False).sum())
    if isinstance(size := getattr(value, "nbytes", None), int):
        return size
    if isinstance(value, list | tuple | set | frozenset | dict):
        return _estimate_items(value)
    return sys.getsizeof(value, 0)


def _estimate_items(value: Any) -> int:
    size, left, waiting = 0, MAX_ITEMS, [value]
    while waiting and left > 0:
        item = waiting.pop()
        left -= 1
        size += sys.getsizeof(item, 0)
        if isinstance(item, list | tuple | set | frozenset | dict):
            if len(item) > left:
                return MAX_TOGETHER + 1
            waiting += [*item.keys(), *item.values()] if isinstance(item, dict) else item
    return size
