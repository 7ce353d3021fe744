"""Rules for every test. Models are downloaded before the first test that needs them. A browser test needs chromium.
Tests that need torch, another framework's environment or minutes of the real model have a mark of their own. Skips are
listed at the end and fail in CI.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_rerunfailures
from hypothesis import HealthCheck, settings

BUILD = Path(__file__).parents[1] / "build"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

UNPULLED = pytest.StashKey[dict[str, str]]()
TORCH = {"torch_python", "older_torch_python", "model_server"}
PEERS = {"agents_python", "enterprise_python", "gateway_python", "hub_python", "openapi_python", "selectools_python"}
WORDS = {
    "browser": {"mark.browser"},
    "model": {"mark.model"},
    "torch": TORCH,
    "peers": PEERS | {"/peers/"},
    "guides": {"/guides/"},
    "ray": {"ray_python"},
}
"""The path or the text of a file with a test of that mark contains one of these words."""

# A busy machine is no bug; and what a run in CI draws, the next one draws too.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=CI)
settings.load_profile("house")


def chromium() -> str | None:
    """Return the path of a chromium on this machine, or None."""
    return next((path for path in map(shutil.which, CHROMIUM) if path), None)


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with torch and all that the transformers backend needs; ``make test-torch`` makes it."""
    return _interpreter("AGENT_KERNEL_TORCH_PYTHON", BUILD / "torch/environments/gpu/bin/python")


@pytest.fixture(scope="session")
def older_torch_python() -> str:
    """The same as ``torch_python``, with the previous minor release of transformers."""
    return _interpreter("AGENT_KERNEL_OLDER_TORCH_PYTHON", BUILD / "torch/older/bin/python")


@pytest.fixture(scope="session")
def agents_python() -> str:
    """An interpreter with openai-agents; ``make test-peers`` makes it."""
    return _interpreter("AGENT_KERNEL_AGENTS_PYTHON", BUILD / "peers-openai/bin/python", "peers-openai")


@pytest.fixture(scope="session")
def selectools_python() -> str:
    """An interpreter with selectools; ``make test-peers`` makes it."""
    return _interpreter("AGENT_KERNEL_SELECTOOLS_PYTHON", BUILD / "peers-selectools/bin/python", "peers-selectools")


@pytest.fixture(scope="session")
def openapi_python() -> str:
    """An interpreter with openapi-python-client; ``make test-peers`` makes it."""
    return _interpreter("AGENT_KERNEL_OPENAPI_PYTHON", BUILD / "peers-openapi/bin/python", "peers-openapi")


@pytest.fixture(scope="session")
def gateway_python() -> str:
    """An interpreter with jupyter-kernel-gateway; ``make test-peers`` makes it."""
    return _interpreter("AGENT_KERNEL_GATEWAY_PYTHON", BUILD / "peers-gateway/bin/python", "peers-gateway")


@pytest.fixture(scope="session")
def enterprise_python() -> str:
    """An interpreter with jupyter-enterprise-gateway; ``make test-peers`` makes it."""
    return _interpreter("AGENT_KERNEL_ENTERPRISE_PYTHON", BUILD / "peers-enterprise/bin/python", "peers-enterprise")


@pytest.fixture(scope="session")
def hub_python() -> str:
    """An interpreter with jupyterhub; ``make test-peers`` makes it."""
    return _interpreter("AGENT_KERNEL_HUB_PYTHON", BUILD / "peers-jupyterhub/bin/python", "peers-jupyterhub")


@pytest.fixture(scope="session")
def ray_python() -> str:
    """An interpreter with Ray Serve and this package; ``make test-ray`` makes it."""
    return _interpreter("AGENT_KERNEL_RAY_PYTHON", BUILD / "ray/bin/python", "ray")


def _interpreter(variable: str, made: Path, target: str = "torch") -> str:
    named = os.environ.get(variable, "")
    if named == "none":
        pytest.skip(f"{variable} is none")
    if not named and not made.exists():
        pytest.skip(f"that interpreter is not here; make it with: make build/{target}/.test")
    return named or str(made)


def models_of(item: pytest.Item) -> set[str]:
    """Return the models that ``@pytest.mark.model("tiny")`` names; without names the test may use any of the default
    models.
    """
    names: set[str] = set()
    for mark in item.iter_markers("model"):
        names |= {str(name) for name in mark.args} or {"coder-0.5b", "tiny"}
    return names


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script: all that tests start would be deaf to Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[UNPULLED] = {}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector. Collection creates 1.6 million objects that stay until the end, so the
    collector would find nothing among them; ``freeze`` excludes them from its later runs.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@cache
def possible_marks(path: Path) -> frozenset[str]:
    text = f"/{path.relative_to(Path(__file__).parent)}\n{path.read_text()}"
    return frozenset(mark for mark, words in WORDS.items() if any(word in text for word in words))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file without a test that ``-m`` asks for: to collect all files takes half a minute in each
    process.
    """
    first = re.match(r"(\w+)( and |$)", config.option.markexpr)
    if first and first[1] in WORDS and re.fullmatch(r"test_.*\.py", collection_path.name):
        return first[1] not in possible_marks(collection_path) or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ``make test`` leaves to other targets, by their fixtures and folders."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if fixtures & TORCH:
            item.add_marker("torch")
        if fixtures & PEERS or folder == "peers":
            item.add_marker("peers")
        if "ray_python" in fixtures:
            item.add_marker("ray")
        if folder == "guides":
            item.add_marker("guides")
        if item.get_closest_marker("browser"):
            # Playwright's synchronous calls wait for a loop that a signal would end, and then wait forever.
            given = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(*(given.args if given else ()), method="thread"), append=False)
        hidden = {mark.name for mark in item.iter_markers()} & set(WORDS) - possible_marks(item.path)
        if hidden:
            raise pytest.UsageError(f"{item.nodeid}: -m {min(hidden)} does not find it. Add a word to WORDS.")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download the models before pytest captures output, so that the user sees the progress bar."""
    needed = sorted({name for item in session.items for name in models_of(item)})
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for name in needed:
            problem = pull(name)
            if problem:
                session.config.stash[UNPULLED][name] = problem


def pull(name: str) -> str:
    """Download the model if it is not in the cache. Return an empty string, or the reason if it failed."""
    command = [sys.executable, "-m", "agent_kernel.cli", "model"]
    if subprocess.run([*command, "path", name], capture_output=True, check=False).returncode == 0:
        return ""
    print(f"\nTests need the model {name}: agent-kernel model pull {name} --yes", flush=True)
    if subprocess.run([*command, "pull", name, "--yes"], check=False).returncode == 0:
        return ""
    return f"the model {name} could not be pulled; run: agent-kernel model pull {name}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(item, "execution_count", 1) > 1:
        discard_fixtures(item)
    for name in sorted(models_of(item)):
        if problem := item.config.stash[UNPULLED].get(name):
            pytest.skip(problem)
    if item.get_closest_marker("browser") and chromium() is None:
        pytest.skip("no chromium on this machine; run: apt-get install chromium")


def discard_fixtures(item: pytest.Item) -> None:
    """Tear down all fixtures before a test that failed runs again (``--reruns``), also those of its module.

    A server that the tests of a module share has played the rounds of its script that can be played once, so the second
    run would always fail, whatever the reason for the first failure was. pytest-rerunfailures keeps such fixtures and
    puts their finalizers aside.
    """
    setup: Any = item.session._setupstate
    setup.stack.update(pytest_rerunfailures.suspended_finalizers)
    pytest_rerunfailures.suspended_finalizers.clear()
    setup.teardown_exact(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        fail_skip_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        fail_skip_in_ci(report)
    return report


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def fail_skip_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure in CI: every requirement of a test is installed there, and a test that did not run
    proves nothing.
    """
    if CI:
        reason = skip_reason(report)
        report.outcome = "failed"
        report.longrepr = f"A skip is a failure in CI. {reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("skipped"):
        terminalreporter.write_line(f"NOT TESTED  {report.nodeid}: {skip_reason(report)}", red=True, bold=True)
