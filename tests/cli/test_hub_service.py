from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import pytest

from agent_kernel.cli.hub_service import apply_to_options, check_settings, read_hub_service
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Settings

SERVICE: Mapping[str, str] = {
    "JUPYTERHUB_API_URL": "http://127.0.0.1:8081/hub/api",
    "JUPYTERHUB_API_TOKEN": "the-token-of-the-service",
    "JUPYTERHUB_SERVICE_NAME": "agent",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/agent/",
    "JUPYTERHUB_SERVICE_URL": "http://10.0.0.7:10101",
}


@pytest.mark.parametrize("missing", sorted(SERVICE.keys() - {"JUPYTERHUB_API_TOKEN"}))
def test_a_variable_of_the_hub_that_is_missing_is_named(missing: str) -> None:
    with pytest.raises(InvalidRequest, match=missing):
        read_hub_service({name: value for name, value in SERVICE.items() if name != missing})


@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:1", "http://:1", "http://a:b", "http://a:99999"])
def test_a_url_without_a_place_to_listen_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="JUPYTERHUB_SERVICE_URL"):
        read_hub_service({**SERVICE, "JUPYTERHUB_SERVICE_URL": url})


def test_without_jupyterhub_the_error_says_what_to_install_and_the_token_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jupyterhub", None)
    environment = dict(SERVICE)
    with pytest.raises(InvalidRequest, match=r"agent-kernel\[hub\]"):
        read_hub_service(environment)
    assert "JUPYTERHUB_API_TOKEN" not in environment


def options(**given: object) -> argparse.Namespace:
    nothing = dict.fromkeys(("token_file", "base_url", "namespace", "host", "port"))
    return argparse.Namespace(**{**nothing, **given})


def test_it_listens_where_the_hub_looks_for_it_unless_the_options_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    service = read_hub_service(dict(SERVICE))
    args = options()
    apply_to_options(args, service)
    assert (args.host, args.port, args.base_url) == ("10.0.0.7", 10101, "/services/agent/")
    args = options(host="0.0.0.0", port=0)
    apply_to_options(args, service)
    assert (args.host, args.port) == ("0.0.0.0", 0)
    for contradiction in ("token_file", "base_url", "namespace"):
        with pytest.raises(InvalidRequest, match=contradiction.replace("_", "-")):
            apply_to_options(options(**{contradiction: "given"}), service)


def test_settings_with_which_users_would_not_be_separate_are_refused() -> None:
    check_settings(Settings(sandbox="on"))
    for settings in (Settings(namespace="team"), Settings(sandbox="off")):
        with pytest.raises(InvalidRequest):
            check_settings(settings)
