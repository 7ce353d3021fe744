"""Tests the addresses that the server gives to its kernels and to users."""

from __future__ import annotations

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_ext.notebooks.kernel_environment import page_url, remote_url, server_url

PREFIX = {"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"}


def server(**settings: object) -> ServerApp:
    return ServerApp(port=8901, base_url="/user/ada/", **settings)


@pytest.mark.parametrize(
    ("ip", "url"),
    [
        ("", "http://127.0.0.1:8901/user/ada/"),
        ("0.0.0.0", "http://127.0.0.1:8901/user/ada/"),
        ("::1", "http://[::1]:8901/user/ada/"),
        ("10.0.0.7", "http://10.0.0.7:8901/user/ada/"),
    ],
)
def test_a_process_on_this_machine_reaches_the_server_at_its_own_address(ip: str, url: str) -> None:
    assert server_url(server(ip=ip)) == url


def test_without_a_hub_the_page_of_a_person_is_at_the_address_of_the_server() -> None:
    assert page_url(server(), {}) == "http://127.0.0.1:8901/user/ada/"


def test_the_page_of_a_person_is_at_the_address_that_the_hub_states() -> None:
    env = {**PREFIX, "JUPYTERHUB_PUBLIC_URL": "https://hub.example.org/user/ada/"}
    assert page_url(server(), env) == "https://hub.example.org/user/ada/"
    assert page_url(server(), {**PREFIX, "JUPYTERHUB_PUBLIC_URL": "https://hub.example.org/user/ada"}).endswith("ada/")


@pytest.mark.parametrize("public", [{}, {"JUPYTERHUB_PUBLIC_URL": ""}])
def test_behind_a_hub_that_states_no_address_the_browser_completes_the_path(public: dict[str, str]) -> None:
    assert page_url(server(custom_display_url="http://node7:8901/"), {**PREFIX, **public}) == "/user/ada/"


def test_the_page_of_a_person_is_at_the_address_that_the_configuration_displays() -> None:
    shown = server(custom_display_url="https://notebooks.example.org/lab?token=secret")
    assert page_url(shown, {}) == "https://notebooks.example.org/user/ada/"


def test_a_kernel_elsewhere_reaches_the_server_at_the_address_that_the_configuration_displays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stated = server(ip="0.0.0.0", custom_display_url="https://notebooks.example.org/")
    assert remote_url(stated) == "https://notebooks.example.org/user/ada/"
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    assert remote_url(server(ip="10.0.0.7")) == "http://10.0.0.7:8901/user/ada/", "a path alone leads nowhere"
