"""Names and paths of models: what they stand for, and what is said when they stand for nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import ModelBroken, ModelMissing, UnknownModel
from agent_kernel.engines.local.catalog.catalog import catalog, entry, is_path, read_catalog, resolve
from agent_kernel.engines.local.catalog.catalog_entry import HubFile, Wheels
from agent_kernel.engines.local.catalog.pull import PullJob
from tests.engines.local.model_sources import environment, wheels_source, write_catalog, write_gguf


def test_the_default_is_the_coder_and_tiny_the_small_one() -> None:
    titles = {found.name: found.title for found in catalog().values()}
    assert titles == {
        "default": "Qwen2.5-Coder-0.5B-Instruct",
        "coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct",
        "tiny": "SmolLM2-135M-Instruct",
    }
    assert {found.protocol for found in catalog().values()} == {"fence"}


@pytest.mark.parametrize("name", ["default", "coder-1.5b", "tiny"])
def test_every_file_of_the_catalog_is_pinned_and_the_hub_comes_first(name: str) -> None:
    found = entry(name)
    assert [source.kind for source in found.sources] == ["hub", "wheels"]
    for source in found.sources:
        word_of_the_hub = name == "coder-1.5b" and isinstance(source, HubFile)
        assert re.fullmatch("" if word_of_the_hub else "[0-9a-f]{64}", source.sha256)
        assert source.publisher
        assert source.why
        assert source.download > 0
        if isinstance(source, HubFile):
            assert re.fullmatch("[0-9a-f]{40}", source.revision)
        elif isinstance(source, Wheels):
            assert all(re.fullmatch("[0-9a-f]{64}", part.sha256) and part.size for part in source.parts)


def test_the_unknown_uploader_of_the_default_is_not_vouched_for() -> None:
    wheels = next(source for source in entry("default").sources if isinstance(source, Wheels))
    assert not wheels.vouched


def test_a_models_real_name_is_as_good_as_its_short_one() -> None:
    assert entry("SmolLM2-135M-Instruct") is entry("tiny")


def test_an_unknown_name_is_answered_with_what_there_is_and_the_closest(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel) as failed:
        resolve("defalt", tmp_path)
    assert "Did you mean default?" in failed.value.message
    assert failed.value.details == {"known": ["default", "coder-1.5b", "tiny"], "closest": "default"}
    with pytest.raises(UnknownModel, match=r"Known: default, coder-1\.5b, tiny"):
        resolve("xyzzy", tmp_path)


def test_a_model_that_was_not_pulled_is_offered_with_size_source_and_licence(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing) as failed:
        resolve("default", tmp_path)
    error = failed.value
    assert error.hint == "Run: agent-kernel model pull default"
    told = {key: error.details[key] for key in ("name", "title", "licence", "publisher", "download_bytes")}
    assert told == {
        "name": "default",
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
