"""Tests how a kernel finds its server from its environment, and what it sends to it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from agent_kernel.notebook.server_client import ServerClient
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
    server = not_none(ServerClient.from_environment(environment))
    assert server.token == TOKEN
    assert "another" not in environment.values()


class Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_text_with_half_of_a_surrogate_pair_is_sent_as_json_that_every_parser_accepts() -> None:
    with HTTPServer(("127.0.0.1", 0), Echo) as listening:
        thread = threading.Thread(target=listening.handle_request)
        thread.start()
        sent = ServerClient(f"http://127.0.0.1:{listening.server_port}/", "k", TOKEN).call(
            "POST", "turns", {"text": "caf\udce9.csv \ud800 größe 😀"}
        )
        thread.join()
    assert sent == {"text": "caf?.csv ? größe 😀"}
