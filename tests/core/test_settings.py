from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Settings


def test_traits_win_over_the_environment_and_that_over_the_defaults() -> None:
    env = {"AGENT_KERNEL_MODEL": "tiny", "AGENT_KERNEL_ENGINE": "scripted", "AGENT_KERNEL_STORE": ""}
    settings = Settings.from_env(env, model="/a/model.gguf")
    assert (settings.model, settings.engine, settings.store) == ("/a/model.gguf", "scripted", "sqlite")


def test_values_have_the_type_of_their_setting() -> None:
    settings = Settings.from_env({"AGENT_KERNEL_MAX_TOOL_ROUNDS": "3", "AGENT_KERNEL_DATA_DIR": "~/agents"})
    assert settings.max_tool_rounds == 3
    assert settings.data_dir == Path.home() / "agents"


def test_zero_tool_rounds_can_be_set() -> None:
    assert Settings.from_env({}, max_tool_rounds=0).max_tool_rounds == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PERMISSION", "yes"),
        ("EXPORT", "maybe"),
        ("MAX_TOOL_ROUNDS", "-1"),
        ("RUN_TIMEOUT_S", "x"),
        ("PRECISION", "int3"),
        ("BACKEND", "llama"),
        ("REDACTION", "maybe"),
        ("REDACTION_PATTERNS", "[1]"),
        ("REDACTION_PATTERNS", '{"label": 1}'),
        ("COMPACTION", "always"),
        ("COMPACTION_THRESHOLD", "80"),
        ("TITLES", "mine"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=name.lower() + "|" + name):
        Settings.from_env({f"AGENT_KERNEL_{name}": value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("compaction_threshold", 80.0, "compaction_threshold must be a share of the model's tokens, 0.1 to 1."),
        ("max_tool_rounds", -1, "max_tool_rounds must be 0 (no tools) or more."),
        ("tools", "python, abacus", "tools must be some of python, "),
        ("titles", "mine", "titles must be one of "),
    ],
)
def test_the_message_of_a_refused_value_is_the_requirement(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Settings.from_env({}, **{name: value})
    assert str(caught.value).startswith(message)
