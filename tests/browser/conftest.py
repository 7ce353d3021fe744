"""A browser on the JupyterLab of a test's own ``server``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab, browser
from tests.conftest import chromium
from tests.server import TOKEN, AgentServer


@pytest.fixture
def lab(server: AgentServer) -> Iterator[Lab]:
    path = chromium()
    assert path is not None
    with browser(path, server.url, TOKEN) as lab:
        yield lab
