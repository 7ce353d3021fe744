"""Tests a user's own GGUF file: used as it is if the library reads it exactly, otherwise rewritten once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_kernel.core.errors import ModelBroken, UnknownModel
from agent_kernel.engines.local.catalog.catalog import resolve
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.pull_stages import Progress
from tests.engines.local.model_sources import sha256, write_gguf


@pytest.mark.parametrize("kind", ["Q8_0", "F16"])
def test_a_file_that_is_read_exactly_is_used_where_it_lies(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine.gguf"
    write_gguf(path, kind)
    model = resolve(str(path), tmp_path / "cache")
    assert model.path == path
    assert model.name == "mine"
    assert model.revision == sha256(path.read_bytes())
    assert (model.protocol, model.context_length, model.source) == ("auto", 2048, str(path))


def test_relative_paths_and_the_home_directory_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "mine.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name in ("mine.gguf", "./mine.gguf", "~/mine.gguf"):
        assert resolve(name, tmp_path / "cache").path == tmp_path / "mine.gguf"


def test_another_quantisation_is_rewritten_once_and_the_original_stays(tmp_path: Path) -> None:
    path, cache = tmp_path / "mine.gguf", tmp_path / "cache"
    write_gguf(path, "Q5_0")
    before = path.read_bytes()
    first: list[Progress] = []
    model = resolve(str(path), cache, first.append)
    assert read_header(model.path).types == {"F32", "Q8_0"}
    assert model.revision == sha256(model.path.read_bytes())
    assert model.path.is_relative_to(cache)
    assert "rewrite" in {step.stage for step in first}
    second: list[Progress] = []
    assert resolve(str(path), cache, second.append) == model
    assert {step.stage for step in second} <= {"wait"}
    assert path.read_bytes() == before


def test_the_same_bytes_under_another_name_are_not_rewritten_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    write_gguf(tmp_path / "one.gguf", "Q5_0")
    (tmp_path / "two.gguf").write_bytes((tmp_path / "one.gguf").read_bytes())
    one, steps = resolve(str(tmp_path / "one.gguf"), cache), list[Progress]()
    two = resolve(str(tmp_path / "two.gguf"), cache, steps.append)
    assert two.path == one.path
    assert (two.name, two.source) == ("two", str(tmp_path / "two.gguf"))
    assert "rewrite" not in {step.stage for step in steps}


def test_a_changed_file_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    write_gguf(path, seed=1)
    first = resolve(str(path), tmp_path / "cache")
    write_gguf(path, seed=2)
    os.utime(path, ns=(1, 1))
    second = resolve(str(path), tmp_path / "cache")
    assert first.revision != second.revision


def test_a_damaged_note_of_the_hash_is_read_again(tmp_path: Path) -> None:
    path, cache = tmp_path / "mine.gguf", tmp_path / "cache"
    write_gguf(path)
    model = resolve(str(path), cache)
    for note in (cache / "models" / "local").iterdir():
        note.write_text("not json")
    assert resolve(str(path), cache) == model


def test_a_path_without_a_file_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"none\.gguf"):
        resolve(str(tmp_path / "none.gguf"), tmp_path / "cache")


def test_a_file_that_is_no_model_is_broken_and_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_text("text")
    with pytest.raises(ModelBroken):
        resolve(str(tmp_path / "mine.gguf"), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
