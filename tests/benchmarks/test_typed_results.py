"""Measures how many variables of ``%%agent -> name: type`` a local model sets right, in a real server and a real
kernel.

``AGENT_KERNEL_BENCH_MODEL`` selects another model.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.notebook import notebook as notebooks
from tests.notebook.notebook import Notebook
from tests.server import AgentServer

MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "default")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="drafts need Linux"),
    pytest.mark.model(MODEL),
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]
CELL_S = 300.0
SETUP = """import pandas as pd
df = pd.DataFrame({
    'species': ['Adelie', 'Gentoo', 'Chinstrap', 'Gentoo', 'Adelie', 'Gentoo', 'Adelie'],
    'mass': [3700, 5000, 3800, 5200, 3600, 4900, 3500],
})"""
TASKS = (
    ("n: int", "How many rows has df?", "n == 7"),
    ("mean: float", "What is the mean mass in df?", "abs(mean - df.mass.mean()) < 0.01"),
    ("heaviest: str", "Which species in df has the highest mean mass?", "heaviest == 'Gentoo'"),
    ("names: list[str]", "Which different species are in df?", "set(names) == {'Adelie', 'Gentoo', 'Chinstrap'}"),
    ("big: DataFrame", "Select the rows of df with a mass above 4000.", "big.equals(df[df.mass > 4000])"),
    ("has: bool", "Does df contain the species Gentoo?", "has is True"),
)


async def test_right_values_of_typed_cells(
    server: AgentServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebooks, "CELL_S", CELL_S)
    kernel = await server.start_kernel("typed.ipynb")
    right = 0
    async with Notebook(server, kernel) as notebook:
        await notebook.run(SETUP)
        for variable, prompt, check in TASKS:
            await notebook.run("%agent new")
            ran = await notebook.run(f"%%agent -> {variable}\n{prompt}", [])
            holds = (await notebook.run(f"bool({check})")).plain.strip() == "True"
            right += holds
            said = next((line for line in reversed(ran.plain.splitlines()) if line.startswith(variable)), ran.error)
            with capsys.disabled():
                print(f"\n{'right' if holds else 'WRONG'}  -> {variable}: {said.strip()[-200:]}")
    with capsys.disabled():
        print(f"\n{MODEL}: {right} of {len(TASKS)} variables are right")
    assert right > len(TASKS) // 2
