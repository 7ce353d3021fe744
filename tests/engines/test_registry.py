"""Tests which engine a name refers to, and which users may use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import Forbidden, InvalidRequest, UnknownModel
from agent_kernel.core.protocols import Engine
from agent_kernel.core.settings import Settings
from agent_kernel.engines.registry import NamedEngines
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.turn.server_runtime import Runtime

SERVERS = {
    "work": {"url": "https://models.example.com/v1", "model": "big", "api_key_env": "WORK_KEY"},
    "here": {"url": "http://127.0.0.1:8000/v1", "model": "small"},
    "mine": {"model": "/models/mine.gguf"},
}


def engines(**settings: Any) -> NamedEngines:
    return NamedEngines(
        Settings(**{"engine": "scripted", "engines": SERVERS, **settings}),
        ScriptedEngine([]),
        lambda chosen: make_engine(chosen),
    )


def make_engine(settings: Settings) -> Engine:
    engine = ScriptedEngine([])
    engine.model = settings.model  # type: ignore[attr-defined]  # what it was made for
    return engine


@pytest.mark.parametrize("name", ["", "scripted"])
def test_where_nothing_was_chosen_the_servers_own_engine_answers(name: str) -> None:
    assert engines().get(name).info().model == "scripted"


@pytest.mark.parametrize(
    ("name", "model", "local", "host"),
    [
        ("work", "big", False, "models.example.com"),
        ("here", "small", True, "127.0.0.1:8000"),
        ("https://other.example/v1#m", "m", False, "other.example"),
    ],
)
def test_a_name_and_a_url_say_where_the_conversation_goes(name: str, model: str, local: bool, host: str) -> None:
    info = engines().get(name).info()
    assert (info.model, info.local, info.host) == (model, local, host)


@pytest.mark.parametrize(("name", "model"), [("mine", "/models/mine.gguf"), ("tiny", "tiny")])
def test_a_model_of_this_machine_is_chosen_by_its_name(name: str, model: str) -> None:
    engine: Any = engines().get(name)
    assert engine.engine.model == model


def test_a_name_gives_the_same_engine_each_time() -> None:
    found = engines()
    assert found.get("work") is found.get("work")
    assert found.get("tiny") is not found.get("default")


def test_what_is_not_there_is_unknown_with_a_guess() -> None:
    with pytest.raises(UnknownModel, match=r"Did you mean work\?"):
        engines().get("wrok")


@pytest.mark.parametrize("name", ["work", "https://other.example/v1", "http://10.0.0.7/v1#m"])
def test_a_server_that_keeps_conversations_here_refuses_every_other_host(name: str) -> None:
    with pytest.raises(Forbidden, match="local_only"):
        engines(local_only=True).get(name)


def test_a_server_that_keeps_conversations_here_may_use_what_is_here() -> None:
    found = engines(local_only=True)
    assert found.get("here").info().host == "127.0.0.1:8000"
    assert {row["name"]: row["refused"] for row in found.describe_configured()} == {
        "work": True,
        "here": False,
        "mine": False,
    }


def test_a_server_that_keeps_conversations_here_can_not_be_set_to_send_them_elsewhere() -> None:
    with pytest.raises(InvalidRequest, match=r"models\.example\.com"):
        Runtime.build(Settings(engine="work", engines=SERVERS, local_only=True, store="memory"))


def test_the_servers_own_engine_can_be_one_of_the_configuration() -> None:
    assert Runtime.build(Settings(engine="work", engines=SERVERS, store="memory")).engine.info().model == "big"


def test_the_servers_own_engine_can_be_a_url() -> None:
    settings = Settings(engine="openai_api", model="http://127.0.0.1:9/v1#m", store="memory")
    assert Runtime.build(settings).engine.info().host == "127.0.0.1:9"
    with pytest.raises(InvalidRequest, match="URL"):
        Runtime.build(Settings(engine="openai_api", store="memory"))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"tiny": SERVERS["work"]}, "catalog"),
        ({"reset": SERVERS["work"]}, "cannot name"),
        ({"a b": SERVERS["work"]}, "cannot name"),
        ({"x": "https://models.example.com/v1"}, "object"),
        ({"x": {"url": "nowhere"}}, "The engine x"),
        ({"x": {"url": "http://h/v1", "api_key": "sk-secret"}}, "api_key_env"),
    ],
)
def test_a_mistake_in_the_configuration_names_the_engine_and_no_secret(body: Any, word: str) -> None:
    with pytest.raises(InvalidRequest, match=word) as refused:
        engines(engines=body)
    assert "sk-secret" not in str(refused.value)


def test_engines_can_be_set_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "engines.toml"
    file.write_text('[here]\nurl = "http://127.0.0.1:8000/v1"\nmodel = "small"\n')
    for value in (json.dumps({"here": SERVERS["here"]}), str(file)):
        assert Settings.from_env({"AGENT_KERNEL_ENGINES": value}).engines == {"here": SERVERS["here"]}
        assert Settings.from_env({"AGENT_KERNEL_ENGINES": value}, engines={}).engines == {"here": SERVERS["here"]}


@pytest.mark.parametrize("value", ["{sk-secret", "/no/such/sk-secret.toml", "[]"])
def test_engines_that_can_not_be_read_are_told_without_being_repeated(value: str) -> None:
    with pytest.raises(InvalidRequest, match="AGENT_KERNEL_ENGINES") as refused:
        Settings.from_env({"AGENT_KERNEL_ENGINES": value})
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(("value", "meant"), [("true", True), ("1", True), ("off", False), ("False", False)])
def test_a_switch_can_be_set_in_the_environment(value: str, meant: bool) -> None:
    assert Settings.from_env({"AGENT_KERNEL_LOCAL_ONLY": value}).local_only is meant


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="LOCAL_ONLY"):
        Settings.from_env({"AGENT_KERNEL_LOCAL_ONLY": "maybe"})
