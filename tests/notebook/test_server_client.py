"""Tests how a kernel finds its server from its environment, and what it sends to it."""

from __future__ import annotations

from agent_kernel.notebook.server_client import ServerClient
from tests.http_server import http_server
from tests.narrowing import not_none

URL, TOKEN = "http://127.0.0.1:8888/", "token-of-this-kernel"


def test_variables_that_came_through_a_gateway_count_under_their_usual_names_and_the_token_is_removed() -> None:
    environment = {
        "KERNEL_AGENT_KERNEL_URL": URL,
        "KERNEL_AGENT_KERNEL_TOKEN": TOKEN,
        "KERNEL_AGENT_KERNEL_PYTHON_IN": "live",
        "KERNEL_USERNAME": "ada",
    }
    server = not_none(ServerClient.from_environment(environment))
    assert (server.url, server.token) == (URL, TOKEN)
    assert environment == {
        "AGENT_KERNEL_URL": URL,
        "AGENT_KERNEL_PYTHON_IN": "live",
        "KERNEL_USERNAME": "ada",
    }


def test_what_the_kernels_own_server_says_is_not_replaced_by_a_gateway() -> None:
    environment = {"AGENT_KERNEL_URL": URL, "AGENT_KERNEL_TOKEN": TOKEN, "KERNEL_AGENT_KERNEL_TOKEN": "another"}
    assert not_none(ServerClient.from_environment(environment)).token == TOKEN
    assert "another" not in environment.values()


def test_text_with_half_of_a_surrogate_pair_is_sent_as_json_that_every_parser_accepts() -> None:
    with http_server(lambda _, body: (200, {}, body)) as url:
        sent = ServerClient(f"{url}/", "k", TOKEN).call("POST", "turns", {"text": "caf\udce9.csv \ud800 größe 😀"})
    assert sent == {"text": "caf?.csv ? größe 😀"}
