"""Fixture: a real server of a small model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.openai_api.model_servers import ModelServer, transformers_serve


@pytest.fixture(scope="session")
def model_server(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """``transformers serve`` with a model of random weights: its answers mean nothing, its protocol is real."""
    with transformers_serve(torch_python, tmp_path_factory.mktemp("model server")) as server:
        yield server
