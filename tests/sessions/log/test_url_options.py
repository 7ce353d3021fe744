"""Tests that our own options are taken out of the URL of a database."""

from __future__ import annotations

import pytest

from agent_kernel.sessions.log.client_holder import take_option


@pytest.mark.parametrize(
    ("url", "rest", "value"),
    [
        ("postgresql://h/db", "postgresql://h/db", ""),
        ("postgresql://h/db?schema=chats", "postgresql://h/db", "chats"),
        ("postgresql://a:b%23@h/db?host=%2Ftmp&schema=a%62&x=1", "postgresql://a:b%23@h/db?host=%2Ftmp&x=1", "ab"),
        ("postgresql://h/db?schema=a&schema=b", "postgresql://h/db", "b"),
        ("postgresql://h/db?my_schema=a", "postgresql://h/db?my_schema=a", ""),
    ],
)
def test_an_option_is_taken_and_the_rest_stays_as_it_is_written(url: str, rest: str, value: str) -> None:
    assert take_option(url, "schema", r"\w+") == (rest, value)


@pytest.mark.parametrize("value", ["", "a-b", "a%20b", "é"])
def test_a_value_that_does_not_fit_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        take_option(f"postgresql://h/db?schema={value}", "schema", r"\w+")
