"""Fixtures: a real server of a small model, and a keyring in memory."""

from __future__ import annotations

from collections.abc import Iterator

import keyring
import pytest
from keyring.backend import KeyringBackend

from tests.engines.openai_api.model_servers import ModelServer, transformers_serve


@pytest.fixture(scope="session")
def model_server(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """``transformers serve`` with a model of random weights: its answers mean nothing, its protocol is real."""
    with transformers_serve(torch_python, tmp_path_factory.mktemp("model server")) as server:
        yield server


class Drawer(KeyringBackend):
    """A system keyring in memory."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of keyring
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    before = keyring.get_keyring()
    keyring.set_keyring(drawer := Drawer())
    yield drawer
    keyring.set_keyring(before)
