"""Tests GGUF headers: the kind of the model, and whether the file is complete."""

from __future__ import annotations

import contextlib
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import ModelBroken
from agent_kernel.engines.local.catalog.gguf_header import read_header
from tests.engines.local.model_sources import write_gguf


def test_it_says_what_the_file_holds(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "Q5_0")
    header = read_header(tmp_path / "m.gguf")
    assert (header.architecture, header.context_length) == ("llama", 2048)
    assert header.types == {"F32", "Q5_0"}


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x63\0\0\0" + bytes(16), b"PK\x03\x04 a zip file"])
def test_what_is_no_gguf_file_is_broken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelBroken):
        read_header(tmp_path / "m.gguf")


def test_a_missing_file_is_broken(tmp_path: Path) -> None:
    with pytest.raises(ModelBroken):
        read_header(tmp_path / "none.gguf")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 0.9999))
def test_a_file_that_was_cut_off_anywhere_is_broken(tmp_path: Path, share: float) -> None:
    whole, cut = tmp_path / "whole.gguf", tmp_path / "cut.gguf"
    if not whole.exists():
        write_gguf(whole, "Q8_0")
    data = whole.read_bytes().rstrip(b"\0")  # zeros at the end are padding: a file without them is whole
    cut.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelBroken):
        read_header(cut)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 900), byte=st.integers(0, 255))
def test_a_damaged_header_is_read_or_refused_but_never_a_crash(tmp_path: Path, at: int, byte: int) -> None:
    whole, bad = tmp_path / "whole.gguf", tmp_path / "bad.gguf"
    if not whole.exists():
        write_gguf(whole, "Q8_0")
    data = bytearray(whole.read_bytes())
    data[at] = byte
    bad.write_bytes(data)
    with contextlib.suppress(ModelBroken):
        read_header(bad)


def test_a_tensor_of_many_dimensions_is_refused_at_once(tmp_path: Path) -> None:
    """Their product has as many words as there are dimensions: 80,000 took minutes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"a"
    path = tmp_path / "many.gguf"
    path.write_bytes(head + struct.pack("<I", 80_000) + struct.pack("<Q", 2**64 - 1) * 80_000 + bytes(12))
    began = time.process_time()
    with pytest.raises(ModelBroken, match="80000 dimensions"):
        read_header(path)
    assert time.process_time() - began < 1
