"""Tests agent-kernel-magic, the distribution for kernels whose environment has no Jupyter server."""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
import zipfile
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agent_kernel.notebook.magic.magic import version_notice
from tests.server import AgentServer, Json
from tests.test_layers import ROOT, imports
from tests.test_packaging import run

PROJECT = ROOT / "packaging" / "magic"
SCRIPT: list[Json] = [
    {"when": "double it", "calls": [{"name": "python", "arguments": {"code": "doubled = 2 * number\ndoubled"}}]},
    {"when": "double it", "text": "It is doubled."},
]
REFUSE = """
import sys

class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("magic")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(PROJECT))
    with zipfile.ZipFile(next(folder.glob("agent_kernel_magic-*-py3-none-any.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_every_module_that_one_of_it_imports_is_in_it(installed: Path) -> None:
    files = [path.relative_to(installed) for path in installed.rglob("*.py")]
    packed = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files}
    assert "agent_kernel.notebook.magic.magic" in packed
    for path in files:
        if path == Path("agent_kernel/__init__.py"):
            continue  # its public names are imported when they are used
        ours = {one.module for one in imports(ROOT / path) if one.module.partition(".")[0] == "agent_kernel"}
        assert ours <= packed | {"agent_kernel"}, path


def test_both_distributions_have_the_same_version_floors_and_licence(installed: Path) -> None:
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    needed = {*project["dependencies"], *chain(*project["optional-dependencies"].values())}
    assert needed <= set(base["dependencies"])
    about = next(installed.glob("*.dist-info"))
    text = (about / "METADATA").read_text()
    assert f"Version: {metadata.version('agent-kernel')}\n" in text
    assert f"License-Expression: {base['license']}\n" in text
    assert (
        next(installed.glob("*.dist-info")).joinpath("licenses", "LICENSE").read_bytes()
        == (ROOT / "LICENSE").read_bytes()
    )


def test_a_kernel_with_ipykernel_and_it_alone_runs_a_turn_and_keeps_a_draft(installed: Path, tmp_path: Path) -> None:
    (installed / "sitecustomize.py").write_text(REFUSE.format(refused=sorted(others_than("ipykernel"))))
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Another environment",
        "language": "python",
        "env": {"PYTHONPATH": str(installed)},
    }
    (tmp_path / "jupyter" / "kernels" / "another").mkdir(parents=True)
    (tmp_path / "jupyter" / "kernels" / "another" / "kernel.json").write_text(json.dumps(spec))

    async def printed(*cells: str) -> list[str]:
        with AgentServer(tmp_path / "server", SCRIPT, env={"JUPYTER_PATH": str(tmp_path / "jupyter")}) as server:
            await server.start()
            kernel = await server.start_kernel("other.ipynb", "another")
            return [await server.run_in_kernel(kernel, cell) for cell in cells]

    place, _, _, kept, panel, engine = asyncio.run(
        printed(
            "import agent_kernel; print(agent_kernel.__file__)",
            "number = 21",
            "%%agent --in draft\ndouble it",
            "get_ipython().run_line_magic('agent', 'keep')\nprint(doubled)",
            "%agent panel",
            "from agent_kernel import Runtime",
        )
    )
    assert place.strip() == str(installed / "agent_kernel" / "__init__.py")
    assert kept.endswith("42\n")
    assert panel.endswith("-m pip install 'agent-kernel-magic[panel]'")
    assert "Install agent-kernel instead." in engine


def others_than(distribution: str) -> set[str]:
    """Return the top-level modules that neither belong to the distribution, nor to one that it needs, nor to us."""
    needed, waiting = set[str](), [distribution]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in needed:
            continue
        needed.add(name)
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    owners = metadata.packages_distributions()
    return {
        module
        for module, names in owners.items()
        if module not in {"agent_kernel", "sitecustomize"}
        and not {name.lower().replace("_", "-") for name in names} & needed
    }


@pytest.mark.parametrize(
    ("own", "server", "told"),
    [("0.4.1", "0.4.7", False), ("0.4.1", "", False), ("0.4.1", "0.5.0", True), ("1.0.0", "0.5.0", True)],
)
def test_a_kernel_says_once_that_its_version_is_not_that_of_its_server(own: str, server: str, told: bool) -> None:
    notice = version_notice({"AGENT_KERNEL_VERSION": server}, own)
    assert bool(notice) == told
    assert (f"-m pip install 'agent-kernel=={server}'" in notice) == told
