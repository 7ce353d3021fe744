"""Tests models of a hub by id: which files of a repository are chosen, downloaded and verified, and the errors; against
real servers on loopback.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_kernel.core.errors import AgentKernelError, ModelMissing, ModelUnsupported, PullFailed, UnknownModel
from agent_kernel.engines.local.catalog.catalog import fetchable, find_installed, is_path, resolve
from agent_kernel.engines.local.catalog.catalog_entry import CatalogEntry, HubFile, HubSnapshot
from agent_kernel.engines.local.catalog.hub_id import HubId
from agent_kernel.engines.local.catalog.hub_listing import hub_entry
from agent_kernel.engines.local.catalog.installed_model import LocalModel, models_dir
from agent_kernel.engines.local.catalog.pull import PullJob
from agent_kernel.engines.local.catalog.pull_stages import Progress
from tests.engines.local.model_sources import REVISION, Hub, environment, model_files, running, write_gguf
from tests.narrowing import instance_of, not_none

SECRET = "hf_averysecrettoken"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub()) as hub:
        yield hub


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_kernel.engines.local.catalog.hub_download.FIRST_WAIT_S", 0.001)


def ask_hub(hub: Hub, text: str, backend: str = "", **env: str) -> CatalogEntry:
    wanted = not_none(HubId.parse(text))
    return hub_entry(wanted, backend, environment(hub) | env)


def pull_model(entry: CatalogEntry, cache: Path, env: dict[str, str]) -> tuple[LocalModel, list[Progress]]:
    run = PullJob(entry, cache, lambda entry, source: True, ("hub",), env)
    steps = list(run)
    return not_none(run.model), steps


# ---------------------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("text", "repo", "revision", "file"),
    [
        ("org/name", "org/name", "", ""),
        ("Org-1/na.me_2@main", "Org-1/na.me_2", "main", ""),
        ("org/name@refs/pr/3", "org/name", "refs/pr/3", ""),
        ("org/name:model-Q8_0.gguf", "org/name", "", "model-Q8_0.gguf"),
        ("org/name@v1.0:sub/model.gguf", "org/name", "v1.0", "sub/model.gguf"),
    ],
)
def test_an_id_names_a_repository_a_revision_and_a_file(text: str, repo: str, revision: str, file: str) -> None:
    found = HubId.parse(text)
    assert found == HubId(repo, revision, file)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        *("name", "a/b/c", "/org/name", "org/", "-o/name", "org/na--me", "org/..", "org/model.gguf", "org/name:x.bin"),
        *("org/name@../../etc", "org/na me", "org/name\n", "--yes/x", "C:/model.gguf", "https://hub/org/name"),
        "örg/name",
    ],
)
def test_what_is_no_id_is_not_taken_for_one(text: str) -> None:
    assert HubId.parse(text) is None


def test_every_id_has_a_folder_of_its_own() -> None:
    ids = ["org/name", "org/name@v1", "org/name:v1.gguf", "org/name-v1", "org-name/v1"]
    slugs = {HubId.parse(text).slug for text in ids}  # type: ignore[union-attr]
    assert len(slugs) == len(ids)
    assert not any("/" in slug or ":" in slug for slug in slugs)


def test_a_path_that_exists_wins_over_an_id_that_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_path("org/name")
    (tmp_path / "org").mkdir()
    model_files(tmp_path / "org" / "name")
    assert is_path("org/name")
    assert resolve("org/name", tmp_path / "cache").path == tmp_path / "org" / "name"


# ---------------------------------------------------------------------------------------------------- what is chosen


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (["m-Q4_K_M.gguf", "m-q8_0.gguf", "m-F16.gguf"], "m-q8_0.gguf"),
        (["m.Q4_K_M.gguf", "m.BF16.gguf", "m.F32.gguf"], "m.BF16.gguf"),
        (["m-Q2_K.gguf", "m-Q4_0.gguf", "m-Q6_K.gguf"], "m-Q6_K.gguf"),
        (["m-IQ2_XS.gguf", "m-Q4_0.gguf"], "m-Q4_0.gguf"),
        (["mmproj-Q8_0.gguf", "m-Q5_0.gguf"], "m-Q5_0.gguf"),
        (["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "m-Q4_0.gguf"], "m-Q4_0.gguf"),
        (["model.gguf"], "model.gguf"),
    ],
)
def test_of_several_gguf_files_the_one_that_is_read_exactly_is_taken(hub: Hub, names: list[str], best: str) -> None:
    hub.publish("org/name", {name: name.encode() for name in names})
    (source,) = ask_hub(hub, "org/name").sources
    assert isinstance(source, HubFile)
    assert (source.file, source.revision, source.size) == (best, REVISION, len(best))
    assert not source.vouched


def test_of_a_snapshot_only_data_is_taken(hub: Hub, tmp_path: Path) -> None:
    files = model_files(tmp_path / "made")
    code = dict.fromkeys(["modeling.py", "pytorch_model.bin", "training_args.bin", "README.md", "x.pt"], b"x")
    more = {"consolidated.safetensors": b"x", "onnx/model.safetensors": b"x", "original/config.json": b"{}"}
    hub.publish("org/name", files | code | more)
    (source,) = ask_hub(hub, "org/name").sources
    assert isinstance(source, HubSnapshot)
    assert {file.path for file in source.files} == set(files)
    assert source.download == sum(map(len, files.values()))


def test_the_backend_decides_where_a_repository_has_both(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made") | {"m-Q8_0.gguf": b"GGUF"})
    assert isinstance(ask_hub(hub, "org/name").sources[0], HubFile)
    assert isinstance(ask_hub(hub, "org/name", "openvino").sources[0], HubFile)
    assert isinstance(ask_hub(hub, "org/name", "transformers").sources[0], HubSnapshot)


def test_an_openvino_export_comes_with_its_weights(hub: Hub) -> None:
    names = ["config.json", "openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml"]
    names += ["openvino_tokenizer.bin", "openvino_detokenizer.xml", "openvino_detokenizer.bin"]
    hub.publish("org/name-ov", {name: name.encode() for name in [*names, "pytorch_model.bin"]})
    (source,) = ask_hub(hub, "org/name-ov").sources
    assert {file.path for file in instance_of(HubSnapshot, source).files} == set(names)


def test_licence_and_publisher_are_told_before_anything_is_fetched(hub: Hub) -> None:
    hub.publish("org/name", {"m-Q4_0.gguf": b"x" * 100})
    offer = ask_hub(hub, "org/name").offer()
    assert (offer["licence"], offer["publisher"], offer["download_bytes"]) == ("apache-2.0", "org, on the hub", 100)
    assert offer["disk_bytes"] > 100, "it is rewritten as Q8_0"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"], "into 2 GGUF files"),
        (["config.json", "pytorch_model.bin"], "only pickled weights"),
        (["adapter_config.json", "adapter_model.safetensors"], "an adapter"),
        (["README.md"], "no GGUF file, no safetensors"),
    ],
)
def test_a_repository_that_can_not_be_used_says_why(hub: Hub, files: list[str], reason: str) -> None:
    hub.publish("org/name", dict.fromkeys(files, b"{}"))
    with pytest.raises(ModelUnsupported, match=reason) as failed:
        ask_hub(hub, "org/name")
    assert failed.value.hint


# ---------------------------------------------------------------------------------------------------- fetched


def test_a_snapshot_lands_in_the_cache_byte_for_byte(hub: Hub, tmp_path: Path) -> None:
    files, cache = model_files(tmp_path / "made"), tmp_path / "cache"
    hub.publish("org/name", files | {"code.py": b"raise SystemExit"})
    model, steps = pull_model(ask_hub(hub, "org/name"), cache, environment(hub))
    assert {path.name: path.read_bytes() for path in model.path.iterdir()} == files
    assert (model.name, model.context_length, model.licence) == ("org/name", 2048, "apache-2.0")
    assert steps[-1].stage == "done"
    downloads = [step for step in steps if step.stage == "download"]
    assert [step.done for step in downloads] == sorted(step.done for step in downloads)
    assert downloads[-1].done == downloads[-1].total == sum(map(len, files.values()))
    assert not list(models_dir(cache).glob("*.partial"))
    record = json.loads((model.path.parent / "model.json").read_text())
    assert (record["commit"], record["publisher"], record["vouched"]) == (REVISION, "org, on the hub", False)


def test_a_pulled_model_is_found_without_asking_anybody(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    cache = tmp_path / "cache"
    model, _ = pull_model(ask_hub(hub, "org/name"), cache, environment(hub))
    before = len(hub.asked)
    assert resolve("org/name", cache, env=environment(hub)) == model
    assert find_installed("org/nam", cache) is None
    assert find_installed("org/name@v1", cache) is None
    assert len(hub.asked) == before


def test_a_gguf_file_of_a_hub_is_rewritten_like_any_other(hub: Hub, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "Q5_0")
    hub.publish("org/name-GGUF", {"m-Q5_0.gguf": (tmp_path / "m.gguf").read_bytes()})
    model, steps = pull_model(ask_hub(hub, "org/name-GGUF"), tmp_path / "cache", environment(hub))
    assert model.path.is_file()
    assert "rewrite" in {step.stage for step in steps}
    assert find_installed("org/name-GGUF", tmp_path / "cache") == model


def test_a_snapshot_goes_on_where_the_connection_broke(hub: Hub, tmp_path: Path) -> None:
    files = model_files(tmp_path / "made")
    hub.publish("org/name", files)
    hub.drop_after = [1] * 5
    model, _ = pull_model(ask_hub(hub, "org/name"), tmp_path / "cache", environment(hub))
    assert {path.name: path.read_bytes() for path in model.path.iterdir()} == files
    assert any(asked for asked in hub.ranges_asked)


def test_files_that_an_interrupted_pull_completed_are_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    entry = ask_hub(hub, "org/name")
    run = PullJob(entry, tmp_path / "cache", lambda entry, source: True, ("hub",), environment(hub))
    steps = iter(run)
    while len(list(models_dir(tmp_path / "cache").rglob("snapshot/*"))) < 2:
        next(steps)
    steps.close()
    pull_model(entry, tmp_path / "cache", environment(hub))
    (source,) = entry.sources
    assert len(hub.ranges_asked) == len(instance_of(HubSnapshot, source).files)


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json"])
def test_a_file_that_is_not_what_the_hub_announced_is_refused(hub: Hub, tmp_path: Path, changed: str) -> None:
    files = model_files(tmp_path / "made")
    hub.publish("org/name", files)
    hub.files[f"/org/name/resolve/{REVISION}/{changed}"] = files[changed][:-1] + b"!"
    hub.announce = None
    with pytest.raises(PullFailed, match="is not the file that was expected"):
        pull_model(ask_hub(hub, "org/name"), tmp_path / "cache", environment(hub))
    assert find_installed("org/name", tmp_path / "cache") is None


def test_what_can_not_be_vouched_for_needs_a_yes(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    run = PullJob(ask_hub(hub, "org/name"), tmp_path, lambda entry, source: False, ("hub",), environment(hub))
    with pytest.raises(PullFailed, match="did not accept"):
        list(run)
    assert not hub.ranges_asked


# ---------------------------------------------------------------------------------------------------- refused


def test_a_model_that_is_not_here_is_offered_with_what_it_costs(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    with pytest.raises(ModelMissing, match=r"licence apache-2\.0") as failed:
        resolve("org/name", tmp_path / "cache", env=environment(hub))
    assert failed.value.hint == "Run: agent-kernel model pull org/name"
    assert failed.value.details["download_bytes"] > 0
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("refusal", "env", "error", "words"),
    [
        (None, {}, UnknownModel, "has no model org/name"),
        ((403, "GatedRepo"), {}, PullFailed, "is gated"),
        ((401, "GatedRepo"), {}, PullFailed, "is gated"),
        ((401, ""), {"HF_TOKEN": SECRET}, PullFailed, "wrong, has expired or was revoked"),
        ((401, ""), {}, UnknownModel, "If the model is private, set HF_TOKEN"),
        ((500, ""), {}, PullFailed, "HTTP 500"),
        (None, {"HF_ENDPOINT": "http://127.0.0.1:9"}, PullFailed, "did not answer"),
        (None, {"HF_HUB_OFFLINE": "1"}, PullFailed, "HF_HUB_OFFLINE"),
    ],
)
def test_a_hub_that_refuses_is_told_in_one_sentence_with_the_next_step(
    hub: Hub, refusal: tuple[int, str] | None, env: dict[str, str], error: type[AgentKernelError], words: str
) -> None:
    if refusal:
        hub.publish("org/name", {"m-Q8_0.gguf": b"x"})
        hub.refusals["org/name"] = refusal
    with pytest.raises(error, match=words) as failed:
        ask_hub(hub, "org/name", **{"HF_TOKEN": SECRET} | env if "HF_TOKEN" in env else env)
    assert failed.value.hint
    assert "\n" not in str(failed.value)
    assert SECRET not in json.dumps(failed.value.to_json())


def test_a_revision_or_a_file_that_is_not_there_is_named(hub: Hub) -> None:
    hub.publish("org/name", {"m-Q8_0.gguf": b"x"})
    with pytest.raises(UnknownModel, match="no revision 'v9'"):
        ask_hub(hub, "org/name@v9")
    with pytest.raises(UnknownModel, match=r"no file other\.gguf") as failed:
        ask_hub(hub, "org/name:other.gguf")
    assert "m-Q8_0.gguf" in failed.value.hint


def test_a_token_goes_to_the_hub_and_not_to_its_storage(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    env = environment(hub) | {"HF_TOKEN": SECRET}
    pull_model(ask_hub(hub, "org/name", HF_TOKEN=SECRET), tmp_path / "cache", env)
    assert {server for server, _, said in hub.asked if SECRET in said} == {"hub"}


def test_without_a_token_nothing_is_sent_in_its_place(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    pull_model(ask_hub(hub, "org/name"), tmp_path / "cache", environment(hub))
    assert {said for _, _, said in hub.asked} == {""}


def test_a_file_behind_a_gate_says_how_to_get_through(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    entry, hub.status = ask_hub(hub, "org/name"), 403
    with pytest.raises(PullFailed, match="gated") as failed:
        pull_model(entry, tmp_path / "cache", environment(hub))
    assert "HF_TOKEN" in failed.value.hint


def test_a_server_that_may_not_ask_a_hub_does_not(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", model_files(tmp_path / "made"))
    for sources in ((), ("wheels",)):
        with pytest.raises(PullFailed, match="do not allow downloads from a model hub"):
            fetchable("org/name", sources=sources, env=environment(hub))
    assert not hub.asked
