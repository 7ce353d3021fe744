"""Tests which fields the configuration of a server may have."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.openai_api.endpoint import Endpoint


@pytest.mark.parametrize(
    ("url", "host", "local"),
    [
        ("https://api.example.com/v1/", "api.example.com", False),
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", True),
        ("http://127.8.9.1/v1", "127.8.9.1", True),
        ("http://[::1]:8000/v1", "[::1]:8000", True),
        ("http://localhost:11434/v1", "localhost:11434", True),
        ("http://LOCALHOST/v1", "localhost", True),
        ("http://localhost.example.com/v1", "localhost.example.com", False),
        ("http://10.0.0.7/v1", "10.0.0.7", False),
        ("http://0.0.0.0:8000/v1", "0.0.0.0:8000", False),
    ],
)
def test_an_address_of_this_machine_is_local_and_every_other_is_not(url: str, host: str, local: bool) -> None:
    endpoint = Endpoint(url)
    assert (endpoint.host, endpoint.local) == (host, local)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:sk-secret@example.com/v1",
        "https://sk-secret@example.com/v1",
        "https://example.com@sk-secret.example/v1",
        "https://example.com/v1?api_key=sk-secret",
        "https://example.com/v1#sk-secret",
        "ftp://sk-secret/v1",
        "sk-secret",
        "http:///v1/sk-secret",
        "http://host:99999/sk-secret",
        "http://ho st/sk-secret",
        "http://host\\@sk-secret/v1",
        "http://hоst/sk-secret",
        "http://host/v1\nsk-secret",
    ],
)
def test_a_url_that_hides_a_secret_or_a_host_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Endpoint(url)
    assert "sk-secret" not in str(refused.value)
    assert "sk-secret" not in repr(refused.value.__cause__)


def test_a_url_can_name_its_model() -> None:
    endpoint = Endpoint.of_url("http://127.0.0.1:8000/v1#Qwen/Qwen3-8B")
    assert (endpoint.url, endpoint.model) == ("http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B")


@pytest.mark.parametrize("name", ["api_key", "token", "headers", "Authorization"])
def test_a_key_in_the_configuration_is_refused_without_being_repeated(name: str) -> None:
    with pytest.raises(InvalidRequest, match="api_key_env") as refused:
        Endpoint.from_json({"url": "http://h/v1", name: "sk-secret"})
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "url"),
        ({"modle": "m"}, "modle"),
        ({"context_length": "many"}, "context_length"),
        ({"vision": "yes"}, "vision"),
        ({"first_token_s": 0}, "first_token_s"),
        ({"connect_s": float("nan")}, "connect_s"),
        ({"tries": 0}, "tries"),
        ({"model": 3}, "model"),
        ({"api_key_env": "A", "api_key_keyring": "a/b"}, "not several of them"),
        ({"api_key_keyring": "service"}, "SERVICE/USER"),
        ({"extra": {"store": True}}, "store"),
        ({"extra": {"previous_response_id": "r"}}, "previous_response_id"),
        ({"extra": {"messages": []}}, "messages"),
        ({"extra": []}, "extra"),
    ],
)
def test_a_mistake_in_the_configuration_is_told(body: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        Endpoint.from_json({"url": "http://h/v1", **body} if body else body)
