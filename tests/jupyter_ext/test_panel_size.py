"""Tests the size of the panel's committed build."""

from __future__ import annotations

import gzip

import pytest

from tests.server import ROOT

MAX_KB = 350


def kilobytes(data: bytes) -> float:
    return len(gzip.compress(data, 9)) / 1024


@pytest.mark.parametrize(
    "pattern", ["jupyter_ext/labextensions/*/static/panel.*.js", "agent_kernel/notebook/panel/static/*.js"]
)
def test_the_panel_is_small(pattern: str) -> None:
    (module,) = ROOT.glob(pattern)
    assert 20 < kilobytes(module.read_bytes()) < MAX_KB


def test_what_loads_before_the_panel_is_smaller_still() -> None:
    (container,) = ROOT.glob("jupyter_ext/labextensions/*/static/remoteEntry.*.js")
    assert kilobytes(container.read_bytes()) < 30
