from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.retention.limits import RetentionLimits


def test_the_defaults_keep_everything() -> None:
    limits = RetentionLimits.of(Settings())
    assert limits == RetentionLimits(ttl=0, max_sessions=0, max_history_turns=0)
    assert not limits


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mistralrs", RetentionLimits(ttl=1_800, max_sessions=128, max_history_turns=0)),
        ("nexo", RetentionLimits(ttl=86_400, max_sessions=10_000, max_history_turns=50)),
    ],
)
def test_presets_are_those_of_the_systems_they_name(name: str, wanted: RetentionLimits) -> None:
    assert RetentionLimits.of(Settings(limits=name)) == wanted


def test_a_setting_of_its_own_wins_over_the_preset_and_zero_is_no_limit() -> None:
    limits = RetentionLimits.of(Settings(limits="nexo", ttl="7d", max_sessions=0))
    assert limits == RetentionLimits(ttl=604_800, max_sessions=0, max_history_turns=50)
    assert RetentionLimits.of(Settings(limits="mistralrs", ttl="0")).ttl == 0


def test_limits_come_from_the_environment_too() -> None:
    env = {"AGENT_KERNEL_TTL": "30m", "AGENT_KERNEL_MAX_SESSIONS": "3", "AGENT_KERNEL_MAX_HISTORY_TURNS": "2"}
    assert RetentionLimits.of(Settings.from_env(env)) == RetentionLimits(1_800, 3, 2)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"limits": "other"}, "limits"),
        ({"ttl": "soon"}, "ttl"),
        ({"max_sessions": -2}, "max_sessions"),
        ({"max_history_turns": -2}, "max_history_turns"),
        ({"quota_sessions": -1}, "quota_sessions"),
        ({"quota_gb": -1.0}, "quota_gb"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        RetentionLimits.of(Settings(**wrong))
