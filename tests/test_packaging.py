"""Tests the distribution: the contents of the wheel, its dependencies, and what an installation changes on the system
and what not.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import nbformat
import pytest

from jupyter_ext.headless.notebook_kernel import notebook_kernel
from jupyter_ext.headless.server_process import jupyter_server
from tests.test_layers import ROOT, imports

BASE_LIMIT = 450_000_000
"""Bytes that a plain install downloads at most, and that its files then have, bytecode not counted."""
NEVER_IN_BASE = {"torch", "accelerate", "bitsandbytes", "triton", "jupyterlab", "pandas"}
PROFILE = 'c.InteractiveShellApp.extensions = ["autoreload"]\n'
SHARED = '{"InteractiveShellApp": {"exec_lines": ["mine = 1"]}}\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # --no-isolation: hatchling is a test requirement, so nothing is downloaded here.
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    run(*build, PATH=f"{without_node(tmp_path_factory.mktemp('bin'))}{os.pathsep}{os.environ['PATH']}")
    return next(folder.glob("agent_kernel-*.whl"))


def without_node(folder: Path) -> Path:
    """Return a directory with commands that fail in place of node: building and installing the package must not need
    node.
    """
    for name in ("node", "npm", "npx", "jlpm", "yarn"):
        (folder / name).write_text("#!/bin/sh\nexit 127\n")
        (folder / name).chmod(0o755)
    return folder


def run(*command: str, **more: str) -> str:
    done = subprocess.run(command, env=clean_environment() | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables that would direct an interpreter or Jupyter to this
    checkout.
    """
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "JUPYTER", "AGENT_KERNEL"))
    }


def test_the_wheel_has_the_docs_and_every_file_of_both_packages_but_the_panel_of_lab_and_no_other(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    tracked = run(
        *("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"),
        *("agent_kernel", "jupyter_ext", "docs"),
    )
    panel_of_lab = {name for name in tracked.splitlines() if name.startswith("jupyter_ext/labextensions/")}
    files = {f"agent_kernel/{name}" if name.startswith("docs/") else name for name in tracked.splitlines()}
    assert packed == files - panel_of_lab
    assert {"agent_kernel/py.typed", "jupyter_ext/py.typed"} <= packed
    assert "agent_kernel/engines/local/catalog/catalog.toml" in packed


def test_the_wheel_enables_the_server_extension_and_leaves_ipython_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        data = {name.partition(".data/data/")[2]: name for name in archive.namelist() if ".data/data/" in name}
        enabled = json.loads(archive.read(data["etc/jupyter/jupyter_server_config.d/agent_kernel.json"]))
    assert enabled == {"ServerApp": {"jpserver_extensions": {"jupyter_ext": True}}}
    assert not [name for name in data if "ipython" in name]


def test_the_wheel_has_the_panel_and_lab_finds_it_enabled(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        shared = [name for name in names if ".data/data/share/jupyter/labextensions/agent-kernel/" in name]
        for name in shared:
            target = tmp_path / name.partition(".data/data/share/jupyter/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    assert {"agent_kernel/notebook/panel/static/widget.js", "agent_kernel/notebook/panel/static/widget.css"} <= set(
        names
    )
    committed = [path for path in (ROOT / "jupyter_ext" / "labextensions").rglob("*") if path.is_file()]
    assert len(shared) == len(committed) >= 4
    assert {Path(name).name for name in shared} >= {"package.json", "install.json", "panel.json"}
    jupyter = str(Path(sys.executable).parent / "jupyter")
    listed = run(jupyter, "labextension", "list", JUPYTER_PATH=str(tmp_path))
    line = next(line for line in listed.splitlines() if "agent-kernel" in line)
    assert "enabled" in line
    assert "OK" in line


def test_the_wheel_has_the_kernelspec_and_jupyter_lists_it(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".data/data/share/jupyter/kernels/" in name:
                target = tmp_path / name.partition(".data/data/share/jupyter/")[2]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
    jupyter = str(Path(sys.executable).parent / "jupyter")
    specs = json.loads(run(jupyter, "kernelspec", "list", "--json", JUPYTER_PATH=str(tmp_path)))["kernelspecs"]
    folder, spec = Path(specs["agent-python"]["resource_dir"]), specs["agent-python"]["spec"]
    assert {path.name for path in folder.iterdir()} == {"kernel.json", "logo-svg.svg", "logo-64x64.png"}
    assert (spec["display_name"], spec["language"]) == ("Agent prompts (Python)", "python")
    assert "ipykernel_launcher" in spec["argv"], "by this module the server knows kernels that run IPython"
    extension = next(word for word in spec["argv"] if word.startswith("--ext=")).removeprefix("--ext=")
    assert hasattr(importlib.import_module(extension), "load_ipython_extension")


def test_the_metadata_name_the_command_the_pythons_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name.partition("/")[0] for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(f"{folder}/METADATA").decode()
        commands = archive.read(f"{folder}/entry_points.txt").decode()
    assert "License-Expression: BSD-3-Clause" in text
    assert "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt" in text
    assert "Requires-Python: <3.14,>=3.11" in text
    assert "agent-kernel = agent_kernel.__main__:main" in commands
    assert f"Version: {version_in_source()}\n" in text


NEEDED_BY_WHO_HAS_IT = {
    "pytest": "agent_kernel/sessions/contract_tests",
    "pytest_asyncio": "agent_kernel/sessions/contract_tests",
    "selectools": "agent_kernel/sessions/adapters",
}
"""Imported only where somebody tests a store with it, or uses one from it."""


def version_in_source() -> str:
    tree = ast.parse((ROOT / "agent_kernel" / "core" / "version.py").read_text())
    named = [
        node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    return str(ast.literal_eval(named[0].value))


def test_every_library_the_packages_import_is_a_dependency_with_a_floor() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name in EXTRAS for line in project["optional-dependencies"][name]]
    floors = {normal(line.partition(">=")[0].partition("[")[0]): line for line in project["dependencies"] + extras}
    assert all(">=" in line for line in floors.values())
    distributions = metadata.packages_distributions()
    missing = set()
    for path in [*ROOT.glob("agent_kernel/**/*.py"), *ROOT.glob("jupyter_ext/**/*.py")]:
        for found in imports(path):
            library = found.library
            if library in sys.stdlib_module_names | {"agent_kernel", "jupyter_ext"}:
                continue
            if library in NEEDED_BY_WHO_HAS_IT and path.is_relative_to(ROOT / NEEDED_BY_WHO_HAS_IT[library]):
                continue
            if not {normal(name) for name in distributions.get(library, [library])} & (set(floors) | THROUGH_OTHERS):
                missing.add(str(found))
    assert not missing, "\n".join(sorted(missing))


# Part of the contract of a dependency that we name: it could not be that package without them.
THROUGH_OTHERS = {"ipython", "tornado", "traitlets", "jupyter-client", "jupyter-core", "jupyter-events", "openvino"}
THROUGH_OTHERS |= {"anyio", "httpx2", "mcp-types", "pydantic-core", "starlette", "typing-extensions"}
EXTRAS = {"gpu", "demo", "encryption", "hub", "keyring", "mcp", "documents", "web"}
EXTRAS |= {"postgres", "ray", "redis", "mongodb", "dynamodb", "supabase"}
"""Whose packages we import."""


def normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").partition("[")[0]


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("base")
    run(sys.executable, "-m", "pip", "download", "-q", "--dest", str(folder / "wheels"), str(wheel))
    environment = Environment(folder)
    environment.install("agent-kernel")
    return environment


class Environment:
    """A fresh virtual environment with its own home and configuration folders."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.prefix = folder / "venv"
        self.home = folder / "home"
        self.home.mkdir()
        self.no_node = folder / "no-node"
        self.no_node.mkdir()
        without_node(self.no_node)
        venv.create(self.prefix, with_pip=True)
        self.python = str(self.prefix / "bin" / "python")
        self.empty = size(self.prefix)

    @property
    def variables(self) -> dict[str, str]:
        folders = {name: str(self.home / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "IPYTHONDIR")}
        path = os.pathsep.join([str(self.prefix / "bin"), str(self.no_node), os.environ["PATH"]])
        return {"HOME": str(self.home), "PATH": path, **folders}

    def __call__(self, command: str, *arguments: str) -> str:
        return run(str(self.prefix / "bin" / command), *arguments, **self.variables)

    def install(self, *arguments: str) -> None:
        # Compiling every module takes most of an install, and the limits leave bytecode out.
        quick = ("-q", "--no-compile", "--no-index", "--find-links", str(self.wheels))
        self("python", "-m", "pip", "install", *quick, *arguments)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.slow
def test_a_plain_install_downloads_less_than_its_limit_and_no_torch(base: Environment) -> None:
    downloaded, installed = size(base.wheels), size(base.prefix) - base.empty
    bytecode = sum(size(folder) for folder in base.prefix.rglob("__pycache__"))
    print(
        f"\nplain install: {downloaded / 1e6:.0f} MB downloaded, {installed / 1e6:.0f} MB on disk, "
        f"{bytecode / 1e6:.0f} MB of it bytecode"
    )
    names = {normal(path.name.partition("-")[0]) for path in base.wheels.iterdir()}
    assert "openvino-genai" in names
    assert not names & NEVER_IN_BASE
    assert downloaded <= BASE_LIMIT
    assert installed - bytecode <= BASE_LIMIT


@pytest.mark.slow
def test_an_install_enables_the_server_extension(base: Environment) -> None:
    listed = base("jupyter", "server", "extension", "list")
    assert "jupyter_ext" in listed
    lines = [line for line in listed.splitlines() if "jupyter_ext" in line]
    assert any("enabled" in line for line in lines), listed
    assert any("OK" in line for line in lines), listed


@pytest.mark.slow
def test_the_installed_command_shows_the_docs_of_the_package(base: Environment) -> None:
    assert base("agent-kernel", "docs", "terminal") == (ROOT / "docs" / "terminal.md").read_text("utf-8") + "\n"


PROBE = """
import json
ip = get_ipython()
magic = "agent" in ip.magics_manager.magics["cell"]
print(json.dumps([globals().get("mine"), sorted(ip.extension_manager.loaded), magic]))
"""


async def ask_kernel(environment: Environment, folder: Path) -> tuple[int | None, set[str], bool]:
    """Return, from a kernel of a real server, the user's variable, the loaded extensions, and whether %%agent
    exists.
    """
    folder.mkdir()
    notebook = nbformat.v4.new_notebook()
    nbformat.write(notebook, folder / "mine.ipynb")
    env = clean_environment() | environment.variables
    async with (
        jupyter_server(folder, folder / "server.log", environment.python, env) as server,
        notebook_kernel(server, "mine.ipynb") as kernel,
    ):
        printed = [
            message["content"]["text"] async for message in kernel.execute(PROBE) if message["msg_type"] == "stream"
        ]
    mine, extensions, magic = json.loads("".join(printed))
    return mine, {name.rpartition(".")[2] for name in extensions}, magic


@pytest.mark.slow
async def test_a_persons_own_kernel_configuration_survives_install_use_and_uninstall(
    base: Environment, tmp_path: Path
) -> None:
    base("python", "-m", "pip", "uninstall", "-q", "-y", "agent-kernel")
    profile = base.home / "ipythondir" / "profile_default" / "ipython_kernel_config.py"
    shared = base.prefix / "etc" / "ipython" / "ipython_kernel_config.json"
    theirs = {profile: PROFILE, shared: SHARED}
    for path, text in theirs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    base.install("agent-kernel")
    mine, extensions, magic = await ask_kernel(base, tmp_path / "with")
    assert mine == 1
    assert {"agent_kernel", "autoreload"} <= extensions
    assert magic
    assert "agent-python" in base("jupyter", "kernelspec", "list")
    base("python", "-m", "pip", "uninstall", "-q", "-y", "agent-kernel")
    assert "agent-python" not in base("jupyter", "kernelspec", "list")
    assert {path: path.read_text() for path in theirs} == theirs
    assert "jupyter_ext" not in base("jupyter", "server", "extension", "list")
    base.install("agent-kernel")
