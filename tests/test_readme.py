"""Tests what the README and the pages beside it mention: files, commands, settings and the example."""

from __future__ import annotations

import ast
import asyncio
import io
import re
from contextlib import redirect_stdout

import pytest
from PIL import Image, ImageSequence

from agent_kernel.core.settings import Settings
from tests.test_layers import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def find_names(pattern: str, text: str = README + SECURITY) -> list[str]:
    return sorted(set(re.findall(pattern, text)))


@pytest.mark.parametrize(
    "path", find_names(r"\]\(([^)#:]+)\)") + find_names(r"`((?:agent_kernel|jupyter_ext|tests|notebooks)/[\w./]*)`")
)
def test_every_file_it_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", find_names(r"\bmake ([a-z]+)[ `\n]", re.sub(r"(?s)```python.*?```", "", README)))
def test_every_make_command_exists(target: str) -> None:
    assert re.search(rf"^{target}:.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "name", find_names(r"AGENT_KERNEL_([A-Z_]+)") + [name.upper() for name in find_names(r"c\.AgentKernel\.(\w+)")]
)
def test_every_setting_exists(name: str) -> None:
    assert hasattr(Settings(), name.lower())


@pytest.mark.parametrize("name", ["Engine", "SessionStore", "Tool", "Sandbox"])
def test_every_seam_of_the_protocols_is_explained(name: str) -> None:
    assert f"| `{name}` |" in CONTRIBUTING


def test_no_measurement_is_left_open() -> None:
    assert not find_names(r"@@\w+@@")
    assert not find_names(r"\b(?:TODO|TBD|XXX)\b")


def test_the_animation_is_small_and_nobody_waits_in_it() -> None:
    path = ROOT / "docs" / "pictures" / "notebook.gif"
    assert path.stat().st_size <= 1_500_000
    with Image.open(path) as animation:
        assert animation.size[0] <= 960
        shown_ms = [frame.info["duration"] for frame in ImageSequence.Iterator(animation)]
    assert 15_000 <= sum(shown_ms) <= 25_000
    assert max(shown_ms) <= 1500


def test_the_python_example_runs() -> None:
    code = re.findall(r"(?s)```python\n(.*?)```", README)[0]
    program = compile(code, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with redirect_stdout(printed):
        asyncio.run(eval(program, {}))
    assert printed.getvalue().startswith("Hello. Usage(")
