"""Runs the session tests that openai-agents and selectools publish, with the classes of agent_kernel for theirs.

    python -m tests.peers.suites openai
    python -m tests.peers.suites selectools

Downloads the source distribution from the package index into build/suites, never into the repository's tree, and runs
it in the environment of ``make build/peers-NAME/.test``. A plugin (``in_place.py``) puts our class where a test makes
one of theirs, and names the tests that look at private parts. The exit status is that of pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "suites"


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one project. ``needs`` are additional packages for its tests; ``without`` excludes tests that need
    more packages.
    """

    package: str
    plugin: str
    tests: tuple[str, ...]
    needs: tuple[str, ...]
    without: str


SUITES = {
    "openai": Suite(
        "openai-agents",
        "tests.peers.agents_sdk.in_place",
        ("tests/memory", "tests/extensions/memory/test_encrypt_session.py"),
        ("aiosqlite", "cryptography", "inline-snapshot", "httpx", "pytest-mock"),
        "--ignore=tests/memory/test_sqlalchemy_compaction.py",
    ),
    "selectools": Suite(
        "selectools",
        "tests.peers.selectools.in_place",
        tuple(
            f"tests/test_{name}.py"
            for name in (
                *("sessions", "sessions_edge_cases", "memory_integration", "conversation_branching", "memory_async"),
                *("bug_hunt_batch1_security", "bug_hunt_regression", "summarize_on_trim", "unified_memory_config"),
                *("v016_regression", "agent_api"),
            )
        ),
        ("hypothesis",),
        # It takes a fixture that is not in the distribution.
        "--deselect=tests/test_bug_hunt_regression.py::TestAsyncConfirmActionRegression",
    ),
}


def source(python: Path, suite: Suite) -> Path:
    """Return the directory of the unpacked source distribution, in the version that the environment has."""
    shown = subprocess.run([python, "-m", "pip", "show", suite.package], capture_output=True, text=True, check=True)
    version = next(line.split()[1] for line in shown.stdout.splitlines() if line.startswith("Version:"))
    name = f"{suite.package.replace('-', '_')}-{version}"
    if not (PLACE / name).is_dir():
        download = ["download", "-q", "--no-deps", "--no-binary", suite.package, "-d", str(PLACE)]
        subprocess.run([python, "-m", "pip", *download, f"{suite.package}=={version}"], check=True)
        with tarfile.open(PLACE / f"{name}.tar.gz") as archive:
            archive.extractall(PLACE, filter="data")
    return PLACE / name


def main(name: str) -> int:
    suite, python = SUITES[name], ROOT / "build" / f"peers-{name}" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *suite.needs], check=True)
    where = source(python, suite)
    # The other project has a package "tests" too: the plugin and what it needs are found under ours first.
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    plugin = [str(python), "-c", START, suite.plugin, "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-rx"]
    return subprocess.run([*plugin, suite.without, *suite.tests], cwd=where, env=env, check=False).returncode


START = """
import importlib, sys
sys.path.remove("")
plugin = importlib.import_module(sys.argv[1])
for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[name]
sys.path.insert(0, "")
import pytest
sys.exit(pytest.main(sys.argv[2:], plugins=[plugin]))
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
