"""Fixtures: JupyterLab on a server that belongs to the test, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, browser, lab_server
from tests.conftest import chromium
from tests.server import TOKEN, AgentServer


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentServer]:
    """A server with the module's SCRIPT, TRAITS and NOTEBOOKS (code cells by path), in the dark theme if the module
    sets DARK.
    """
    module = request.module
    notebooks = getattr(module, "NOTEBOOKS", {"rain.ipynb": ["df = 1", "df"]})
    traits, dark = getattr(module, "TRAITS", {}), getattr(module, "DARK", False)
    with lab_server(tmp_path, module.SCRIPT, notebooks, traits, dark=dark) as server:
        yield server


@pytest.fixture
def lab(server: AgentServer) -> Iterator[Lab]:
    path = chromium()
    assert path is not None
    with browser(path, server.url, TOKEN) as lab:
        yield lab
