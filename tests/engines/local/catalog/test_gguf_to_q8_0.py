"""Tests rewriting a file as Q8_0: the values stay the same, and so does everything else in the file."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_kernel.core.errors import ModelBroken
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.gguf_to_q8_0 import file_hash, needs_rewrite, rewrite
from agent_kernel.engines.local.catalog.pull_stages import Progress
from tests.engines.local.model_sources import sha256, write_gguf

STEP = {"Q4_0": 1 / 8, "Q4_1": 1 / 15, "Q5_0": 1 / 16, "Q5_1": 1 / 31}
"""Largest rounding step of each kind, as a share of a block's largest absolute value (of its range for _1)."""


def tensors(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def numbers(tensor: gguf.ReaderTensor) -> np.ndarray:
    values: np.ndarray = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return values


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16"])
def test_the_weights_differ_by_no_more_than_one_rounding_to_8_bits(tmp_path: Path, kind: str) -> None:
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    original = write_gguf(source, kind)["blk.0.attn_q.weight"]
    list(rewrite(source, target))
    before, after = numbers(tensors(source)["blk.0.attn_q.weight"]), numbers(tensors(target)["blk.0.attn_q.weight"])
    blocks = np.abs(before).reshape(len(before), -1, 32).max(axis=2, keepdims=True)
    error = np.abs(after - before).reshape(len(before), -1, 32)
    # Half a step of rounding, and the step itself is stored as a 16 bit float: 127 times 2 ** -11 of it.
    assert (error <= blocks / 127 * (0.5 + 127 * 2**-11 + 1e-3)).all()
    reach = 2 * np.abs(original).max()
    assert np.abs(after - original).max() <= STEP.get(kind, 1 / 128) * reach


def test_only_q8_0_and_floats_are_left_and_floats_keep_every_bit(tmp_path: Path) -> None:
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    norm = write_gguf(source, "Q5_0")["output_norm.weight"]
    assert needs_rewrite(read_header(source))
    list(rewrite(source, target))
    assert read_header(target).types == {"F32", "Q8_0"}
    assert np.array_equal(tensors(target)["output_norm.weight"].data, norm)


def test_metadata_tokenizer_and_chat_template_are_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    write_gguf(source, "Q5_0")
    list(rewrite(source, target))
    before, after = gguf.GGUFReader(source).fields, gguf.GGUFReader(target).fields
    changed = {key for key in before if before[key].contents() != after[key].contents()}
    assert set(before) == set(after)
    assert changed == {"general.file_type"}
    assert after["general.file_type"].contents() == int(gguf.LlamaFileType.MOSTLY_Q8_0)


def test_rows_that_are_no_whole_number_of_blocks_become_16_bit_floats(tmp_path: Path) -> None:
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    write_gguf(source, "BF16", columns=100)
    list(rewrite(source, target))
    assert read_header(target).types == {"F32", "F16"}


def test_q8_0_and_16_bit_files_are_used_as_they_are(tmp_path: Path) -> None:
    for kind in ("Q8_0", "F16", "F32"):
        write_gguf(tmp_path / kind, kind)
        assert not needs_rewrite(read_header(tmp_path / kind))


def test_progress_counts_up_to_the_size_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "in.gguf"
    write_gguf(source, "Q5_0", rows=512)
    steps = [(step.done, step.total) for step in rewrite(source, tmp_path / "out.gguf")]
    assert steps == sorted(steps)
    assert steps[-1][0] > 0.99 * source.stat().st_size
    assert {total for _, total in steps} == {source.stat().st_size}


def test_a_large_tensor_is_unpacked_in_pieces(tmp_path: Path) -> None:
    """512 MiB as floats: rewriting it at once would need twice that."""
    source = tmp_path / "in.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    rows, columns = 32_768, 4096
    block = gguf.quants.quantize(np.ones((1, columns), np.float32), gguf.GGMLQuantizationType.Q5_0)
    writer.add_tensor("token_embd.weight", np.repeat(block, rows, axis=0), raw_dtype=gguf.GGMLQuantizationType.Q5_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    list(rewrite(source, tmp_path / "out.gguf"))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < rows * columns * 4


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.gguf").write_bytes(b"not a model" * 100)
    with pytest.raises(ModelBroken):
        list(rewrite(tmp_path / "in.gguf", tmp_path / "out.gguf"))


def test_the_hash_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 1000)
    found = []

    def steps() -> Iterator[Progress]:
        found.append((yield from file_hash(tmp_path / "file")))

    assert [(step.stage, step.done, step.total) for step in steps()] == [("verify", 3000, 3000)]
    assert found == [sha256(b"abc" * 1000)]
