"""Tests a model directory: it is inspected without loading it, and its defects are reported before anything
is loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_kernel.core.errors import ModelBroken
from agent_kernel.engines.local.catalog.catalog import resolve
from agent_kernel.engines.local.catalog.model_directory import read_model_directory
from tests.engines.local.model_sources import model_files, write_gguf, write_safetensors

SHAPE = {"weight": (64, 32)}


def shard_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for name in names:
        write_safetensors(folder / name, SHAPE)
    index = {"weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_openvino_export(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for name in ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml"):
        (folder / name).write_bytes(b"x" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model_files(tmp_path / "model")
    return tmp_path / "model"


def test_architecture_context_and_sizes_come_from_its_files(folder: Path) -> None:
    found = read_model_directory(folder)
    assert (found.kind, found.architecture, found.context_length) == ("safetensors", "llama", 2048)
    assert found.parameters == 2 * 64 * 32
    assert found.weights == (folder / "model.safetensors").stat().st_size


def test_a_model_that_sees_says_its_context_in_its_text_part(folder: Path) -> None:
    config = {"model_type": "qwen2_vl", "text_config": {"max_position_embeddings": 99}}
    (folder / "config.json").write_text(json.dumps(config))
    assert read_model_directory(folder).context_length == 99


def test_weights_in_pieces_are_counted_together(folder: Path) -> None:
    shard_weights(folder)
    assert read_model_directory(folder).parameters == 2 * 64 * 32


def test_an_openvino_export_is_known_by_its_graph(folder: Path) -> None:
    make_openvino_export(folder)
    found = read_model_directory(folder)
    assert (found.kind, found.weights) == ("openvino", 64)


def test_a_directory_is_used_where_it_lies_and_a_change_makes_it_another_model(folder: Path, tmp_path: Path) -> None:
    model = resolve(str(folder), tmp_path / "cache")
    assert (model.path, model.name, model.context_length) == (folder, "model", 2048)
    assert resolve(str(folder), tmp_path / "cache") == model
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert resolve(str(folder), tmp_path / "cache").revision != model.revision
    assert not (tmp_path / "cache").exists()


def cut(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1])


def missing_shard(folder: Path) -> None:
    shard_weights(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def pickle_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def only_gguf(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    write_gguf(folder / "m.gguf")


def lying_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")


def no_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def wrong_shapes(folder: Path) -> None:
    text = b'{"a": {"shape": "x", "data_offsets": [0, null]}}'
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def climbing_index(folder: Path) -> None:
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def half_export(folder: Path) -> None:
    make_openvino_export(folder)
    (folder / "openvino_model.bin").unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "the file ends after"),
        (missing_shard, "lacks 1 of 2 weight files"),
        (pickle_weights, "only pickled weights"),
        (only_gguf, "contains GGUF files"),
        (lying_header, "not a complete safetensors file"),
        (no_header, "not a complete safetensors file"),
        (wrong_shapes, "not a complete safetensors file"),
        (climbing_index, "lacks 1 of 1 weight files, for example passwd"),
        (half_export, r"openvino_model\.bin is missing"),
        (lambda folder: (folder / "config.json").unlink(), r"has no config\.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), "does not contain a JSON object"),
        (lambda folder: (folder / "config.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no safetensors weights"),
    ],
)
def test_a_directory_that_is_no_model_says_what_is_wrong_and_what_to_do(
    folder: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(folder)
    with pytest.raises(ModelBroken, match=words) as failed:
        read_model_directory(folder)
    assert failed.value.hint
