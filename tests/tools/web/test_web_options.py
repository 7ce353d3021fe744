from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.web.web_options import WebOptions, domain_of


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ({}, 8_192),
        ({"search_context_size": "low"}, 4_096),
        ({"search_context_size": "medium"}, 8_192),
        ({"search_context_size": "high"}, 16_384),
        ({"search_context_size": "low", "return_token_budget": "default"}, 4_096),
        ({"search_context_size": "low", "return_token_budget": "unlimited"}, 16_384),
    ],
)
def test_the_size_of_the_context_is_a_number_of_tokens(given: dict[str, Any], tokens: int) -> None:
    assert WebOptions.of(given).tokens == tokens


@pytest.mark.parametrize(
    "given",
    [
        {"search_context_size": "huge"},
        {"return_token_budget": "all"},
        {"search_content_types": ["image"]},
        {"search_content_types": 3},
        {"search_context_size": {"a": 1}},
        {"return_token_budget": ["all"]},
        {"filters": ["example.org"]},
        {"filters": {"allowed_domains": "example.org"}},
        {"filters": {"allowed_domains": [3]}},
        {"filters": {"blocked_domains": [""]}},
        {"filters": {"allowed_domains": [f"d{number}.example" for number in range(101)]}},
        {"user_location": {"type": "exact"}},
        {"user_location": "Paris"},
    ],
)
def test_options_that_make_no_sense_are_the_clients_mistake(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        WebOptions.of(given)


@pytest.mark.parametrize(
    ("url", "lets"),
    [
        ("https://example.org/a", True),
        ("https://www.example.org/a", True),
        ("https://docs.example.org/a", True),
        ("https://EXAMPLE.org./a", True),
        ("https://ads.example.org/a", False),
        ("https://a.ads.example.org/a", False),
        ("https://badexample.org/", False),
        ("https://example.org.evil.net/", False),
        ("https://other.net/", False),
        ("javascript:alert(1)", False),
        ("https://[broken", False),
    ],
)
def test_domains_are_meant_with_all_below_them(url: str, lets: bool) -> None:
    filters = {"allowed_domains": ["https://www.Example.org/"], "blocked_domains": ["ads.example.org"]}
    assert WebOptions.of({"filters": filters}).lets(url) is lets


def test_without_filters_everything_is_let_in() -> None:
    assert WebOptions.of({"filters": {}}).lets("https://anything.example/")
    assert not WebOptions.of({"filters": {"blocked_domains": ["bad.example"]}}).lets("https://www.bad.example/")


@pytest.mark.parametrize(
    "location",
    [
        {"type": "approximate", "approximate": {"city": "London", "country": "GB", "planet": "Earth"}},
        {"type": "approximate", "city": "London", "country": "GB", "region": None},
    ],
)
def test_a_location_is_read_in_both_shapes(location: dict[str, Any]) -> None:
    assert WebOptions.of({"user_location": location}).location == {"city": "London", "country": "GB"}


def test_a_domain_is_told_without_www() -> None:
    assert [domain_of(url) for url in ("https://www.A.org:81/x", "x", "http://[::1]/")] == ["a.org", "", "::1"]
