"""Tests which model a name or a path refers to, and the error if it refers to none."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import ModelBroken, ModelMissing, UnknownModel
from agent_kernel.engines.local.catalog.catalog import catalog, defaults, entry, is_path, read_catalog, resolve
from agent_kernel.engines.local.catalog.catalog_entry import HubFile, Wheels
from agent_kernel.engines.local.catalog.gguf_header import Header, read_header
from agent_kernel.engines.local.catalog.installed_model import LocalModel, write_record
from agent_kernel.engines.local.catalog.pull import PullJob
from agent_kernel.engines.local.system_memory import Memory
from tests.engines.local.model_sources import environment, wheels_source, write_catalog, write_gguf

GIB = 2**30


def test_the_models_of_the_catalog() -> None:
    titles = {found.name: found.title for found in catalog().values()}
    assert titles == {
        "coder-0.5b": "Qwen2.5-Coder-0.5B-Instruct",
        "coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct",
        "coder-7b": "Qwen2.5-Coder-7B-Instruct",
        "qwen3-4b": "Qwen3-4B",
        "qwen3-8b": "Qwen3-8B",
        "qwen3-14b": "Qwen3-14B",
        "tiny": "SmolLM2-135M-Instruct",
    }
    assert {found.name for found in catalog().values() if found.protocol != "fence"} == {
        "qwen3-4b",
        "qwen3-8b",
        "qwen3-14b",
    }


@pytest.mark.parametrize(
    ("total", "names"),
    [(8 * GIB, ["coder-0.5b"]), (12 * GIB, ["coder-1.5b", "coder-0.5b"]), (64 * GIB, ["coder-1.5b", "coder-0.5b"])],
)
def test_the_default_is_the_best_model_for_which_the_machine_has_the_memory(total: int, names: list[str]) -> None:
    assert [one.name for one in defaults(Memory(total, total // 8))] == names


def test_where_the_memory_is_unknown_the_default_is_the_model_for_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_kernel.engines.local.catalog.catalog.read_memory", lambda: None)
    assert entry("default").name == "coder-0.5b"


def test_a_smaller_model_that_is_here_is_the_default_until_a_better_one_is_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_kernel.engines.local.catalog.catalog.read_memory", lambda: Memory(64 * GIB, GIB))
    with pytest.raises(ModelMissing, match=r"The model coder-1\.5b "):
        resolve("default", tmp_path)
    for name in ("coder-0.5b", "coder-1.5b"):
        model = entry(name)
        directory = model.directory(model.sources[-1], tmp_path)
        directory.mkdir(parents=True)
        write_gguf(directory / "model.gguf")
        here = LocalModel(name, directory / "model.gguf", "0" * 64, "fence", 1_024, "Apache-2.0", "a test")
        write_record(directory, here)
        assert resolve("default", tmp_path).name == name


def test_a_model_that_an_earlier_version_pulled_as_the_default_is_found(tmp_path: Path) -> None:
    model = entry("coder-0.5b")
    assert [path.name for path in [model.directory(model.sources[1], tmp_path)]] == ["default-1d9614638d18"]


@pytest.mark.parametrize("name", list(catalog()))
def test_every_file_of_the_catalog_is_pinned_and_the_hub_comes_first(name: str) -> None:
    found = entry(name)
    mirrored = name in ("coder-0.5b", "coder-1.5b", "tiny")
    assert [source.kind for source in found.sources] == (["hub", "wheels"] if mirrored else ["hub"])
    for source in found.sources:
        word_of_the_hub = name in ("coder-1.5b", "coder-7b") and isinstance(source, HubFile)
        assert re.fullmatch("" if word_of_the_hub else "[0-9a-f]{64}", source.sha256)
        assert source.publisher
        assert source.why
        assert source.download > 0
        if isinstance(source, HubFile):
            assert re.fullmatch("[0-9a-f]{40}", source.revision)
        elif isinstance(source, Wheels):
            assert all(re.fullmatch("[0-9a-f]{64}", part.sha256) and part.size for part in source.parts)


def test_the_unknown_uploader_of_the_wheels_is_not_vouched_for() -> None:
    wheels = next(source for source in entry("coder-0.5b").sources if isinstance(source, Wheels))
    assert not wheels.vouched


@pytest.mark.parametrize("name", ["coder-0.5b", "coder-1.5b"])
def test_a_mirror_is_described_by_what_its_file_is_and_by_the_number_of_its_packages(name: str) -> None:
    mirror = next(source for source in entry(name).sources if isinstance(source, Wheels))
    assert mirror.why.startswith(
        f"Byte-identical to Qwen's own Q4_K_M release (sha256 verified), mirrored in {len(mirror.parts)} packages."
    )


def test_a_models_real_name_is_as_good_as_its_short_one() -> None:
    assert entry("SmolLM2-135M-Instruct") is entry("tiny")


def test_an_unknown_name_is_answered_with_what_there_is_and_the_closest(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel) as failed:
        resolve("coder-1.5", tmp_path)
    assert "Did you mean coder-1.5b?" in failed.value.message
    assert failed.value.details == {"known": ["default", *catalog()], "closest": "coder-1.5b"}
    with pytest.raises(UnknownModel, match=r"The catalog has: default, coder-0\.5b, coder-1\.5b, coder-7b, qwen3-4b"):
        resolve("xyzzy", tmp_path)


def test_a_model_that_was_not_pulled_is_offered_with_size_source_and_licence(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing) as failed:
        resolve("coder-0.5b", tmp_path)
    error = failed.value
    assert error.hint == "Run: agent-kernel model pull coder-0.5b"
    told = {key: error.details[key] for key in ("name", "title", "licence", "publisher", "download_bytes")}
    assert told == {
        "name": "coder-0.5b",
        "title": "Qwen2.5-Coder-0.5B-Instruct",
        "licence": "Apache-2.0",
        "publisher": "Qwen (Alibaba Cloud)",
        "download_bytes": 675_710_848,
    }
    assert [source["vouched"] for source in error.details["sources"]] == [True, False]
    assert not list(tmp_path.iterdir())


def test_a_pulled_model_is_found_whichever_source_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf")
    source = wheels_source(tmp_path / "wheels", (tmp_path / "m.gguf").read_bytes(), vouched=True)
    missing = source | {"sha256": "0" * 64}
    path = write_catalog(tmp_path / "catalog.toml", [missing, source])
    monkeypatch.setattr("agent_kernel.engines.local.catalog.catalog.CATALOG", path)
    only = read_catalog(write_catalog(tmp_path / "only.toml", [source]))["small"]
    run = PullJob(only, tmp_path / "cache", lambda entry, source: False, env=environment(wheels=tmp_path / "wheels"))
    list(run)
    assert resolve("small", tmp_path / "cache") == run.model


def test_the_header_of_an_installed_model_is_read_again_only_after_the_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = entry("coder-0.5b")
    directory = model.directory(model.sources[-1], tmp_path)
    directory.mkdir(parents=True)
    file = directory / "model.gguf"
    write_gguf(file)
    write_record(directory, LocalModel(model.name, file, "0" * 64, "fence", 1_024, "Apache-2.0", "a test"))
    read: list[Path] = []

    def count(path: Path) -> Header:
        read.append(path)
        return read_header(path)

    monkeypatch.setattr("agent_kernel.engines.local.catalog.installed_model.read_header", count)
    assert [resolve(model.name, tmp_path).path for _ in range(3)] == [file] * 3
    assert read == [file]
    file.write_bytes(b"HTML" + file.read_bytes()[4:])
    os.utime(file, ns=(0, 0))  # the clock of the file system may be too coarse to tell the two writings apart
    with pytest.raises(ModelBroken):
        resolve(model.name, tmp_path)


@pytest.mark.parametrize("change", ["cut", "no record", "bad record"])
def test_a_damaged_model_is_told_with_what_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    write_gguf(tmp_path / "m.gguf")
    source = wheels_source(tmp_path / "wheels", (tmp_path / "m.gguf").read_bytes(), vouched=True)
    path = write_catalog(tmp_path / "catalog.toml", [source])
    monkeypatch.setattr("agent_kernel.engines.local.catalog.catalog.CATALOG", path)
    run = PullJob(
        entry("small"), tmp_path / "cache", lambda entry, source: False, env=environment(wheels=tmp_path / "wheels")
    )
    list(run)
    directory = resolve("small", tmp_path / "cache").path.parent
    if change == "cut":
        (directory / "model.gguf").write_bytes(b"GGUF")
    elif change == "no record":
        (directory / "model.json").unlink()
    else:
        (directory / "model.json").write_text("{")
    with pytest.raises(ModelBroken) as failed:
        resolve("small", tmp_path / "cache")
    assert str(directory) in failed.value.hint


@pytest.mark.parametrize(
    ("model", "path"),
    [("default", False), ("a/b.gguf", True), ("~/m", True), ("./m", True), ("m.gguf", True), ("C:\\m", True)],
)
def test_a_path_is_told_from_a_name_by_its_looks(model: str, path: bool) -> None:
    assert is_path(model) is path


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "telepathy"},
        {"sources": []},
        {"surprise": 1},
        {"sources": [{"kind": "carrier pigeon"}]},
        {"sources": [{"kind": "wheels", "sha256": "abc", "parts": []}]},
    ],
)
def test_a_catalog_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_gguf(tmp_path / "m.gguf")
    good = wheels_source(tmp_path / "wheels", (tmp_path / "m.gguf").read_bytes())
    sources = change.get("sources", [good])
    rest = {key: value for key, value in change.items() if key != "sources"}
    with pytest.raises(ModelBroken):
        read_catalog(write_catalog(tmp_path / "catalog.toml", sources, **rest))
