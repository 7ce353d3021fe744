"""Tests how a kernel finds its server from its environment."""

from __future__ import annotations

from agent_kernel.notebook.server_client import ServerClient

URL, TOKEN = "http://127.0.0.1:8888/", "token-of-this-kernel"


def test_variables_that_came_through_a_gateway_count_under_their_usual_names_and_the_token_is_removed() -> None:
    environment = {
        "KERNEL_AGENT_KERNEL_URL": URL,
        "KERNEL_AGENT_KERNEL_TOKEN": TOKEN,
        "KERNEL_AGENT_KERNEL_PYTHON_IN": "live",
        "KERNEL_USERNAME": "ada",
    }
    server = ServerClient.from_environment(environment)
    assert server is not None
    assert (server.url, server.token) == (URL, TOKEN)
    assert environment == {
        "AGENT_KERNEL_URL": URL,
        "AGENT_KERNEL_PYTHON_IN": "live",
        "KERNEL_USERNAME": "ada",
    }


def test_what_the_kernels_own_server_says_is_not_replaced_by_a_gateway() -> None:
    environment = {"AGENT_KERNEL_URL": URL, "AGENT_KERNEL_TOKEN": TOKEN, "KERNEL_AGENT_KERNEL_TOKEN": "another"}
    server = ServerClient.from_environment(environment)
    assert server is not None
    assert server.token == TOKEN
    assert "another" not in environment.values()
