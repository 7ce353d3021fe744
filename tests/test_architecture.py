"""The map and the paths in docs/architecture.md and CONTRIBUTING.md agree with the code."""

from __future__ import annotations

import pkgutil
import re

import pytest

from tests.test_layers import LAYERS, ROOT

ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS: tuple[str, ...] = ("", "agent_kernel", "agent_kernel/engines/local", "agent_kernel/notebook")
FOLDERS += ("agent_kernel/sandbox", "agent_kernel/sessions", "agent_kernel/tools", "jupyter_ext/api", "ui/src")
"""Where a path may begin: at the repository, or at the folder that its row of a table describes."""


def node_of(folder: str) -> str:
    """Return the node of the picture for a folder of LAYERS."""
    parts = folder.split(".")
    if folder == "notebook.panel":
        return folder
    return ".".join(parts[:2]) if parts[0] in ("jupyter_ext", "engines", "sandbox") else parts[0]


def imported_nodes() -> set[tuple[str, str]]:
    """Return pairs of nodes; the first may import the second."""
    pairs = {(node_of(folder), node_of(name)) for folder, row in LAYERS.items() for name in row[0].split()}
    return {(one, other) for one, other in pairs if one != other}


def drawn_arrows() -> set[tuple[str, str]]:
    return set(re.findall(r"(?m)^ +([\w.]+) --> ([\w.]+)$", ARCHITECTURE))


def reachable_from(node: str, arrows: set[tuple[str, str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        following = {end for start, end in arrows if start == current} - reached
        reached |= following
        waiting += following
    return reached


def test_every_arrow_of_the_picture_is_an_import_that_the_layers_allow() -> None:
    assert drawn_arrows() - imported_nodes() == set()


def test_every_import_that_the_layers_allow_follows_the_arrows_of_the_picture() -> None:
    arrows = drawn_arrows()
    missing = {(one, other) for one, other in imported_nodes() if other not in reachable_from(one, arrows)}
    assert missing == set()


NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", ARCHITECTURE + CONTRIBUTING)))
NO_FILES = ("agent/", "turns/", "build/")
"""What routes begin with, and a folder that a build makes."""


@pytest.mark.parametrize("path", [path for path in NAMED if not path.startswith(NO_FILES)])
def test_every_path_exists(path: str) -> None:
    assert any((ROOT / folder / path).exists() for folder in FOLDERS)


def test_the_glossary_is_sorted_and_has_one_row_for_each_term() -> None:
    rows = re.findall(r"(?m)^\| ([^|]+) \|", ARCHITECTURE.partition("## Glossary")[2])[1:]
    terms = [row for row in rows if not row.startswith("---")]
    assert len(terms) >= 40
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            name.rstrip(".")
            for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
            if path.name != "CHANGELOG.md"
            for name in re.findall(r"(?<![\w/.])agent_kernel(?:\.\w+)+", path.read_text(encoding="utf-8"))
        }
    ),
)
def test_every_name_of_the_package_in_the_documentation_can_be_resolved(name: str) -> None:
    assert pkgutil.resolve_name(name) is not None
