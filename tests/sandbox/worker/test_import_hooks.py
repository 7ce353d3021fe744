"""Tests that a library is imported as usual when the worker's addition to it fails, and that standard error has the
reason.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

from agent_kernel.sandbox.worker.import_hooks import AfterImport


def fail(module: types.ModuleType) -> None:
    raise AttributeError(f"{module.__name__} has no Canvas")


def test_a_hook_that_fails_leaves_the_library_as_it_is_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drawing_library.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [AfterImport({"drawing_library": fail}, {}), *sys.meta_path])
    try:
        assert importlib.import_module("drawing_library").ready
    finally:
        sys.modules.pop("drawing_library", None)
    expected = "The additions to drawing_library failed: AttributeError: drawing_library has no Canvas\n"
    assert capsys.readouterr().err == expected
