"""Rewrites a GGUF file of any quantisation as Q8_0, which openvino-genai reads exactly.

openvino-genai 2026.4 reads Q4_1 inexactly and Q5_0 not at all. Metadata, tokenizer and chat template are kept. Needs
the ``gguf`` library (numpy), which is imported at the first use.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_kernel.core.errors import ModelBroken
from agent_kernel.engines.local.catalog.gguf_header import Header, read_header
from agent_kernel.engines.local.catalog.pull_stages import Progress

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter, ReaderTensor

DIRECT = frozenset({"F32", "F16", "Q8_0"})
"""Tensor types that openvino-genai reads exactly, so that they are copied unchanged."""
ROWS_AT_ONCE = 1 << 22
"""Number of weights that are unpacked to 32-bit floats at a time (16 MiB). It bounds the memory for tensors of any
size."""
CHUNK = 1 << 22


def needs_rewrite(header: Header) -> bool:
    return not header.types <= DIRECT


def rewrite(source: Path, target: Path) -> Iterator[Progress]:
    """Write the model in ``source`` to ``target`` as Q8_0, flush it to the disk, and yield progress in bytes of
    ``source``. Raises ModelBroken, and OSError if the disk is full; the caller then removes the incomplete
    ``target``."""
    import gguf

    total = source.stat().st_size
    yield Progress("rewrite", 0, total)
    try:
        reader = gguf.GGUFReader(source)
        writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
        _copy_metadata(gguf, reader, writer)
        plan = [(tensor, _target_type(gguf, tensor)) for tensor in reader.tensors]
    except (ValueError, KeyError, IndexError) as error:
        raise ModelBroken(f"{source} cannot be rewritten: {error}.", hint="Download the file again.") from error
    try:
        for tensor, kind in plan:
            _announce(gguf, writer, tensor, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done = int(reader.data_offset)
        for tensor, kind in plan:
            writer.write_tensor_data(_convert(gguf, tensor, kind))
            done += int(tensor.n_bytes)
            yield Progress("rewrite", min(done, total), total)
    except NotImplementedError as error:
        raise ModelBroken(f"{source} cannot be rewritten: {error}.", hint="Use a Q8_0 or F16 file.") from error
    except OSError as error:
        if error.errno is None:  # numpy raises this for an incomplete write
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
        raise
    finally:
        writer.close()
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    if needs_rewrite(read_header(target)):
        raise ModelBroken(f"{source} could not be rewritten as Q8_0.", hint="Use a Q8_0 or F16 file.")


def file_hash(path: Path) -> Generator[Progress, None, str]:
    """Yield progress while the file is read, and return its SHA-256 in hexadecimal digits."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            yield Progress("verify", done, total)
    return digest.hexdigest()


def _copy_metadata(gguf: Any, reader: GGUFReader, writer: GGUFWriter) -> None:
    """Copy all metadata keys except those that the writer creates. Empty arrays are left out, because the writer cannot
    store them."""
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = field.contents()
        if key == "general.file_type":
            value = int(gguf.LlamaFileType.MOSTLY_Q8_0)
        if key == "general.alignment":
            writer.data_alignment = value
        if value != []:
            writer.add_key_value(key, value, field.types[0], sub_type=field.types[-1] if len(field.types) > 1 else None)


def _target_type(gguf: Any, tensor: ReaderTensor) -> Any:
    """Return the type in which the tensor is stored: its own type if that is in DIRECT, otherwise Q8_0, or F16 if a row
    is not a whole number of Q8_0 blocks."""
    if tensor.tensor_type.name in DIRECT:
        return tensor.tensor_type
    kinds = gguf.GGMLQuantizationType
    return kinds.Q8_0 if int(tensor.shape[0]) % gguf.GGML_QUANT_SIZES[kinds.Q8_0][0] == 0 else kinds.F16


def _shape(gguf: Any, tensor: ReaderTensor, kind: Any) -> tuple[int, ...]:
    """Return the shape of the stored array, rows first. For a quantised type, the last dimension is counted in
    bytes."""
    shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
    return shape if kind.name in ("F32", "F16") else tuple(gguf.quants.quant_shape_to_byte_shape(shape, kind))


def _announce(gguf: Any, writer: GGUFWriter, tensor: ReaderTensor, kind: Any) -> None:
    numpy = gguf.quants.np
    dtype = numpy.dtype({"F32": numpy.float32, "F16": numpy.float16}.get(kind.name, numpy.uint8))
    shape = _shape(gguf, tensor, kind)
    writer.add_tensor_info(tensor.name, shape, dtype, int(numpy.prod(shape)) * dtype.itemsize, raw_dtype=kind)


def _convert(gguf: Any, tensor: ReaderTensor, kind: Any) -> Any:
    """Return the tensor's data as an array of type ``kind``. It is converted a few rows at a time, which bounds the
    memory."""
    if tensor.tensor_type == kind:
        return tensor.data
    numpy = gguf.quants.np
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    step = max(1, ROWS_AT_ONCE // int(tensor.shape[0]))
    pieces = [
        gguf.quants.quantize(gguf.quants.dequantize(rows[at : at + step], tensor.tensor_type), kind)
        for at in range(0, len(rows), step)
    ]
    return numpy.concatenate(pieces).reshape(_shape(gguf, tensor, kind))
