"""Computes a digest of a variable's content, by which two variables can be compared. Supports well-known types up to a
limited size. Never calls methods of unknown objects such as ``__str__``, ``__hash__`` or pickling. Standard library
only.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 64 << 20
"""Size in bytes of the largest array that gets a digest."""
MAX_CELLS = 2_000_000
"""Number of cells of the largest table that gets a digest. Its digest takes less than half a second even if the cells
are objects."""
MAX_NODES = 100_000
"""Limit for the number of items in nested lists and dictionaries, all levels counted together."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))
END = object()
DATES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)


def content_digest(value: Any) -> str:
    """Return a digest that is equal for values of equal type and content. Returns "" for values of unsupported types
    and for values that are too large."""
    try:
        parts = _parts(value)
    except Exception:  # noqa: BLE001  a person's object may raise anything, and unhashable cells raise TypeError
        return ""
    if not parts:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def variable_digest(value: object) -> str:
    """Return the digest of a container or of a plain value, such as a number; return "" for all other values."""
    return content_digest(value) or content_digest([value])


def _parts(value: Any) -> list[bytes]:
    pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
    kind = type(value)
    if pandas is not None and kind in (pandas.DataFrame, pandas.Series, pandas.Index):
        return _table_parts(value, pandas)
    if numpy is not None and kind is numpy.ndarray:
        return _array_parts(value)
    if kind in (list, tuple, dict, set, frozenset):
        return _container_parts(value)
    return []


def _table_parts(table: Any, pandas: Any) -> list[bytes]:
    if table.size > MAX_CELLS or not all(map(_is_plain, _columns(table, pandas))):
        return []
    names = [str(name) for name in (table.columns if table.ndim == 2 else [getattr(table, "name", "")])]
    kinds = [str(kind) for kind in (table.dtypes if table.ndim == 2 else [table.dtype])]
    facts = repr((type(table).__name__, table.shape, names, kinds)).encode(errors="surrogatepass")
    indexed = () if isinstance(table, pandas.Index) else (repr(table.index.names).encode(errors="surrogatepass"),)
    return [facts, *indexed, pandas.util.hash_pandas_object(table).to_numpy().tobytes()]


def _columns(table: Any, pandas: Any) -> list[Any]:
    if isinstance(table, pandas.DataFrame):
        return [table.index, *(column for _, column in table.items())]
    return [table, table.index] if isinstance(table, pandas.Series) else [table]


def _is_plain(column: Any) -> bool:
    """Return False if the column contains objects that would compute their hash or text with code of their own."""
    return column.dtype != object or all(type(cell) in (*PLAIN, *DATES) for cell in column.to_list())


def _array_parts(array: Any) -> list[bytes]:
    if array.nbytes > MAX_BYTES or array.dtype.hasobject:
        return []
    return [repr((array.shape, array.dtype.str)).encode(), array.tobytes()]


def _container_parts(value: Any) -> list[bytes]:
    parts: list[bytes] = []
    waiting: list[Iterator[Any]] = [iter((value,))]
    nodes = 0
    while waiting:
        node: Any = next(waiting[-1], END)
        if node is END:
            waiting.pop()
            parts.append(b")")
            continue
        nodes += 1
        kind = type(node)
        if nodes > MAX_NODES:
            return []
        if kind in PLAIN or kind in DATES:
            parts.append(f"{kind.__name__} {node!r}".encode(errors="surrogatepass"))
        elif kind in (list, tuple):
            parts.append(kind.__name__.encode() + b"(")
            waiting.append(iter(node))
        elif kind is dict:
            parts.append(b"dict(")
            waiting.append(itertools.chain.from_iterable(node.items()))
        elif kind in (set, frozenset) and all(type(item) in PLAIN for item in node):
            parts.append(kind.__name__.encode() + repr(sorted(map(repr, node))).encode(errors="surrogatepass"))
        else:
            return []
    return parts
