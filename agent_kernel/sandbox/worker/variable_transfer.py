"""Copies variables into and out of the jail. Runs inside it: standard library only; numpy, pandas, pyarrow and polars
are used where the value needs them.

Encodings in both directions: ``json`` for plain values, and with the type pandas.DataFrame or pandas.Series for a table
as ``{columns, index, data}`` (pandas' orient "split"); ``npy`` for arrays without objects; ``arrow`` for tables (an IPC
stream). ``pickle`` is accepted only for variables that enter the jail, because loading a pickle runs code that its
author chose.
"""

from __future__ import annotations

import importlib
import io
import json
import pickle
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

MAX_BYTES = 64 << 20
"""Limit in bytes of all variables that one run receives together, and of one copy that is taken."""
LISTED = 200
_FRAME, _SERIES = "pandas.DataFrame", "pandas.Series"
_ARRAYS = ("numpy", "pandas", "polars", "pyarrow", "scipy", "torch")


class NotCopied(Exception):
    """Raised if a value cannot be copied. The text is the reason."""


def give(namespace: dict[str, Any], variables: Sequence[Mapping[str, Any]]) -> None:
    """Set the ``variables`` in ``namespace``, all of them or none. Raises NotCopied if a variable cannot be decoded."""
    values: dict[str, Any] = {}
    for variable in variables:
        try:
            values[variable["name"]] = _read(variable["encoding"], bytes(variable["data"]), variable.get("type", ""))
        except Exception as error:  # decoding runs code of libraries, which may raise anything
            raise NotCopied(
                f"The variable {variable['name']} could not be read here, and the code did not run: "
                f"{type(error).__name__}: {error}"
            ) from error
    namespace.update(values)


def take(namespace: Mapping[str, Any], name: str) -> tuple[str, str, bytes]:
    """Return (encoding, type, data) of a copy of the variable ``name``. Raises LookupError if there is none, NotCopied
    if it cannot be copied."""
    if name not in namespace:
        raise LookupError(name)
    value = namespace[name]
    try:
        encoding, data = _serialize(value)
    except NotCopied:
        raise
    except Exception as error:  # a user's object may raise anything when it is copied
        raise NotCopied(f"{name} cannot be copied: {type(error).__name__}: {error}") from error
    if len(data) > MAX_BYTES:
        raise NotCopied(
            f"{name} has {len(data):,} bytes; at most {MAX_BYTES:,} are copied. Write it to a file instead."
        )
    return encoding, type_of(value), data


def list_variables(namespace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List ``{name, type, shape?}`` of the code's variables. Values are never converted to text."""
    entries: list[dict[str, Any]] = []
    for name, value in list(namespace.items()):
        if name.startswith("_") or isinstance(value, types.ModuleType) or len(entries) >= LISTED:
            continue
        entries.append({"name": name[:200], "type": type_of(value)[:200], "shape": _shape(value)})
    return sorted(entries, key=lambda one: str(one["name"]))


def type_of(value: Any) -> str:
    return name_of_type(type(value))


def name_of_type(kind: type) -> str:
    root = kind.__module__.partition(".")[0]
    if root in _ARRAYS:
        return f"{root}.{kind.__qualname__}"
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _shape(value: Any) -> list[int]:
    if isinstance(value, (str, bytes, bytearray, list, tuple, dict, set, frozenset)):
        return [len(value)]
    if type(value).__module__.partition(".")[0] not in _ARRAYS:
        return []
    shape = getattr(value, "shape", ())
    return [side for side in shape if isinstance(side, int)][:32] if isinstance(shape, tuple) else []


def _read(encoding: str, data: bytes, kind: str) -> Any:
    if encoding == "json":
        return _table(json.loads(data), kind) if kind in (_FRAME, _SERIES) else json.loads(data)
    if encoding == "npy":
        return importlib.import_module("numpy").load(io.BytesIO(data), allow_pickle=False)
    if encoding == "arrow":
        return _read_arrow(data, kind)
    if encoding == "pickle":
        return pickle.loads(data)
    raise ValueError(f"the encoding {encoding} is not supported for variables")


def _table(body: Mapping[str, Any], kind: str) -> Any:
    frame = importlib.import_module("pandas").DataFrame(body["data"], index=body.get("index"), columns=body["columns"])
    return frame if kind == _FRAME else frame.iloc[:, 0]


def _read_arrow(data: bytes, kind: str) -> Any:
    if kind.startswith("polars."):
        frame = importlib.import_module("polars").read_ipc_stream(io.BytesIO(data))
        return frame.to_series() if kind == "polars.Series" else frame
    table = importlib.import_module("pyarrow.ipc").open_stream(data).read_all()
    if not kind.startswith("pandas."):
        return table
    frame = table.to_pandas()
    return frame.iloc[:, 0] if kind == _SERIES else frame


def _serialize(value: Any) -> tuple[str, bytes]:
    kind = type_of(value)
    if kind in (_FRAME, _SERIES):
        return _from_pandas(value if kind == _FRAME else value.to_frame())
    if kind in ("polars.DataFrame", "polars.Series"):
        buffer = io.BytesIO()
        (value if kind == "polars.DataFrame" else value.to_frame()).write_ipc_stream(buffer)
        return "arrow", buffer.getvalue()
    if kind == "pyarrow.Table":
        return "arrow", _arrow(value)
    if kind.startswith("numpy."):
        array = sys.modules["numpy"].asarray(value)
        if array.dtype.hasobject:
            raise NotCopied("An array of Python objects cannot be copied: make it a list, or give it a number type.")
        buffer = io.BytesIO()
        sys.modules["numpy"].save(buffer, array, allow_pickle=False)
        return "npy", buffer.getvalue()
    try:
        _plain(value, 0)
    except TypeError as error:
        raise NotCopied(
            f"A value of type {error} cannot be copied: make it a table, an array, or plain numbers, texts, lists and "
            "dictionaries."
        ) from None
    return "json", json.dumps(value).encode()


def _from_pandas(frame: Any) -> tuple[str, bytes]:
    try:
        arrow = importlib.import_module("pyarrow")
    except ImportError:
        return "json", frame.to_json(orient="split", date_format="iso").encode()
    return "arrow", _arrow(arrow.Table.from_pandas(frame))


def _arrow(table: Any) -> bytes:
    sink = io.BytesIO()
    with importlib.import_module("pyarrow.ipc").new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _plain(value: Any, depth: int) -> None:
    """Raise TypeError, with the name of the type, for a value that JSON would change or cannot represent. ``depth`` is
    its nesting level."""
    if depth > 100:
        raise TypeError("that nests too deeply")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"dict with keys of {type(key).__name__}")
            _plain(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _plain(item, depth + 1)
    elif not (value is None or type(value) in (str, int, float, bool)):
        raise TypeError(type_of(value))
