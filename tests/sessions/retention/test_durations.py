from __future__ import annotations

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.retention.limits import seconds


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("30m", 1_800),
        ("24h", 86_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1h30m", 5_400),
        ("1.5h", 5_400),
        (" 24H ", 86_400),
        ("0", 0),
        ("", 0),
        ("0s", 0),
    ],
)
def test_units_are_exact(text: str, length: float) -> None:
    assert seconds(text, "ttl") == length


@pytest.mark.parametrize(
    "text", ["30", "-1h", "h", "1h 30m", "1y", "1,5h", "24 h", "1e3s", "never", "nan", "\u0663h", "3h4"]
)
def test_what_is_no_length_of_time_is_refused_with_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(InvalidRequest, match="ttl must be a time such as 30m, 24h or 7d"):
        seconds(text, "ttl")


def test_longer_than_anybody_waits_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ttl can be at most 100 years"):
        seconds("9" * 400 + "d", "ttl")
