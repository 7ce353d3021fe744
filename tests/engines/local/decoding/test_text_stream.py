"""Tests the conversion of tokens to text: only whole characters are emitted, and no part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.engines.local.decoding.text_stream import TextStream


def decode(ids: Sequence[int]) -> str:
    """Decode tokens of a byte vocabulary."""
    return bytes(ids).decode("utf-8", "replace")


def decode_skipping(ids: Sequence[int]) -> str:
    """Decode as openvino's detokenizer does, which omits incomplete characters."""
    return bytes(ids).decode("utf-8", "ignore")


@pytest.mark.parametrize("decoder", [decode, decode_skipping])
def test_a_character_of_several_tokens_comes_out_whole(decoder: object) -> None:
    stream = TextStream(decoder)  # type: ignore[arg-type]  # both take ids
    deltas = [stream.push([byte]) for byte in "a😀é".encode()]

    assert "".join(deltas) == "a😀é"
    assert not any("\ufffd" in delta for delta in deltas)


@given(st.text(max_size=40), st.integers(1, 5))
def test_the_deltas_joined_are_the_text(text: str, size: int) -> None:
    stream = TextStream(decode_skipping)
    data = text.encode("utf-8", "ignore")
    deltas = [stream.push(list(data[at : at + size])) for at in range(0, len(data), size)]

    assert "".join([*deltas, stream.finish()]) == data.decode() == stream.text


@given(st.text("abS", max_size=30), st.sampled_from(["S", "SS", "aS", "Sab"]), st.integers(1, 4))
def test_only_text_before_the_stop_string_comes_out(text: str, stop: str, size: int) -> None:
    stream = TextStream(decode, [stop])
    data = text.encode()
    deltas = []
    for at in range(0, len(data), size):
        deltas.append(stream.push(list(data[at : at + size])))
        if stream.stopped:
            break
    else:
        deltas.append(stream.finish())

    assert "".join(deltas) == text.partition(stop)[0]
    assert bool(stream.stopped) == (stop in text)


def test_the_earliest_stop_string_counts() -> None:
    stream = TextStream(decode, ["two", "one"])
    stream.push(list(b"zero one two"))

    assert (stream.text, stream.stopped) == ("zero ", "one")


def test_a_replacement_character_that_was_really_written_is_kept() -> None:
    stream = TextStream(decode)
    stream.push([0xFF])

    assert stream.finish() == "\ufffd"
