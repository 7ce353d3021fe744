from __future__ import annotations

import importlib.util

import pytest

from agent_kernel.sandbox.worker.missing_imports import KNOWN, missing_imports


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("pd.DataFrame()", ["import pandas as pd"]),
        ("def f():\n    return np.pi", ["import numpy as np"]),
        ("x = [math.pi for _ in range(3)]", ["import math"]),
        ("await thing()\njson.dumps(1)", ["import json"]),
        ("import pandas as pd\npd.DataFrame()", []),
        ("re = 1\nre + 1", []),
        ("def f(os):\n    return os", []),
        ("x.pd = 1", []),
        ("'pd'", []),
        ("this is no python", []),
        ("datetime.now()", ["from datetime import datetime"]),
        ("datetime(2024, 1, 1)", ["from datetime import datetime"]),
        ("datetime.datetime.now()", ["import datetime"]),
        ("datetime.timedelta(days=1)", ["import datetime"]),
        ("Counter('aab') + Counter()", ["from collections import Counter"]),
        ("train_test_split(x)", ["from sklearn.model_selection import train_test_split"]),
        ("scipy.stats.skew(x) + scipy.stats.iqr(x)", ["import scipy.stats"]),
        ("from scipy import stats\nstats.skew(x)", []),
    ],
)
def test_only_what_the_code_uses_and_does_not_bind_is_imported(
    monkeypatch: pytest.MonkeyPatch, source: str, lines: list[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # as if all packages were installed
    assert missing_imports(source, {}) == lines


def test_a_name_of_the_person_is_never_replaced() -> None:
    assert missing_imports("pd + np.pi", {"pd": 1}) == ["import numpy as np"]


def test_a_module_that_is_not_installed_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert missing_imports("pd.DataFrame()", {}) == []


INSTALLED = sorted(line for line in KNOWN.values() if importlib.util.find_spec(line.split()[1].partition(".")[0]))


@pytest.mark.parametrize("line", INSTALLED)
def test_each_known_line_of_an_installed_package_binds_its_name(line: str) -> None:
    names: dict[str, object] = {}
    exec(line, names)
    assert next(name for name, known in KNOWN.items() if known == line) in names
