"""Reads the header of a GGUF file, which describes the model and the types of its tensors, without loading the tensors.

Uses only the standard library and takes 40 ms for a vocabulary of 150,000, so that it can run at every start; the
``gguf`` library needs numpy and 6 s for the same file. Format: https://github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import ModelBroken

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 30: ("BF16", 1, 2),
}  # fmt: skip
"""Maps the number of a tensor type to (name, weights in a block, bytes of a block). A type that is not listed gets the
name ``type NUMBER``."""
MAX_DIMENSIONS = 8
"""Maximum number of dimensions of a tensor; ggml has 4. In a damaged file that states millions of dimensions, the
product of their sizes would be a huge number."""
_DAMAGE = (struct.error, IndexError, OverflowError, UnicodeDecodeError, TypeError, ZeroDivisionError, RecursionError)
"""Errors that reading a damaged header causes: the file is cut off, has text in place of a number, an alignment of 0,
or deeply nested arrays."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a GGUF file. ``types`` contains the tensor types in the file; ``context_length`` is 0 if the file
    does not state it; ``parameters`` counts the elements of all tensors."""

    architecture: str
    licence: str
    context_length: int
    types: frozenset[str]
    parameters: int


def read_header(path: Path) -> Header:
    """Read a header. Raises ModelBroken if the file cannot be read, is not GGUF of version 2 or 3, or ends too
    early."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _HeaderReader(data, path).header()
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ModelBroken(f"{path} cannot be read: {error}.") from error
    except _DAMAGE as error:
        raise _broken(path, "the header is damaged or cut off") from error


def _broken(path: Path, reason: str) -> ModelBroken:
    return ModelBroken(f"{path} is not a usable GGUF file: {reason}.", hint="Download the file again.")


class _HeaderReader:
    """Reads the header from the mapped file in one pass; ``at`` is the position of the next byte."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.at = 4

    def header(self) -> Header:
        if self.data[:4] != MAGIC:
            raise _broken(self.path, "the file does not start with GGUF")
        version, tensors, keys = self.scalar("I"), self.scalar("Q"), self.scalar("Q")
        if version not in VERSIONS:
            raise _broken(self.path, f"the version is {version}, not 2 or 3")
        values = dict(self.pair() for _ in range(keys))
        types, parameters = self.tensor_types(tensors, int(values.get("general.alignment", 32)))
        architecture = str(values.get("general.architecture", ""))
        return Header(
            architecture=architecture,
            licence=str(values.get("general.license", "")),
            context_length=int(values.get(f"{architecture}.context_length", 0)),
            types=types,
            parameters=parameters,
        )

    def tensor_types(self, count: int, alignment: int) -> tuple[frozenset[str], int]:
        """Read the descriptions of ``count`` tensors. Return the names of their types, and the number of elements of
        all tensors together. Raises ModelBroken if the data of a tensor would lie beyond the end of the file."""
        names, last, total = set(), 0, 0
        for _ in range(count):
            self.string()
            elements, dimensions = 1, self.scalar("I")
            if dimensions > MAX_DIMENSIONS:
                raise _broken(self.path, f"a tensor has {dimensions} dimensions")
            for _ in range(dimensions):
                elements *= self.scalar("Q")
            number, offset = self.scalar("I"), self.scalar("Q")
            name, block, size = TYPES.get(number, (f"type {number}", 1, 0))
            names.add(name)
            last = max(last, offset + elements // block * size)
            total += elements
        start = -(-self.at // alignment) * alignment
        if start + last > len(self.data):
            raise _broken(self.path, f"the file ends after {len(self.data)} of {start + last} bytes")
        return frozenset(names), total

    def pair(self) -> tuple[str, Any]:
        key = self.string().decode()
        return key, self.value(self.scalar("I"))

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string().decode()
        if kind == ARRAY:
            return self.skip_array(self.scalar("I"), self.scalar("Q"))
        if kind not in SCALARS:
            raise _broken(self.path, f"the header contains a value of the unknown type {kind}")
        return self.scalar(SCALARS[kind])

    def skip_array(self, kind: int, count: int) -> None:
        """Skip an array. Arrays contain vocabularies, which are not needed."""
        if kind in SCALARS:
            self.at += count * struct.calcsize("<" + SCALARS[kind])
            return
        for _ in range(count):
            if kind == STRING:
                self.at += 8 + struct.unpack_from("<Q", self.data, self.at)[0]
            else:
                self.value(kind)

    def scalar(self, code: str) -> Any:
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> bytes:
        length = self.scalar("Q")
        if self.at + length > len(self.data):
            raise _broken(self.path, "the header is damaged or cut off")
        self.at += length
        return self.data[self.at - length : self.at]
