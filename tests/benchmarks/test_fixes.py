"""How many of the failing cells ``%agent fix`` repairs with a local model, in a real server and a real kernel.

A fix is right if the proposed cell runs after the cell that failed, in the same kernel, and then does what that cell
meant. ``AGENT_KERNEL_BENCH_TASKS`` selects cells by name, ``AGENT_KERNEL_BENCH_MODEL`` another model.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass

import pytest

from tests.benchmarks.notebook_errors import NotebookError, notebook_errors
from tests.benchmarks.notebook_tasks import BUILD
from tests.notebook import notebook as notebooks
from tests.notebook.notebook import Notebook
from tests.server import AgentServer

MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "default")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="drafts need Linux"),
    pytest.mark.model(MODEL),
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]
CELL_S = 300.0
JUDGE = """
try:
    print("HOLDS" if bool(eval({expression!r})) else "NO")
except Exception:
    print("NO")
"""


@dataclass(frozen=True, slots=True)
class Fix:
    """The result of one fix: ``proposed`` is the proposed cell, or empty; ``error`` is what that cell raised; ``says``
    is the text that the user read.
    """

    name: str
    held_out: bool
    proposed: str
    error: str
    right: bool
    seconds: float
    says: str


async def test_right_fixes_of_failing_cells(
    server: AgentServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebooks, "CELL_S", CELL_S)
    only = [name for name in os.environ.get("AGENT_KERNEL_BENCH_TASKS", "").split(",") if name]
    cases = [case for case in notebook_errors() if not only or case.name in only]
    fixes = [await fix(server, case) for case in cases]
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "fixes.json").write_text(json.dumps([asdict(one) for one in fixes], indent=1), encoding="utf-8")
    with capsys.disabled():
        for held_out in (False, True):
            half = [one for one in fixes if one.held_out == held_out]
            print(
                f"\n{'held out' if held_out else 'tuned on'}: right {sum(one.right for one in half)} of {len(half)}, "
                f"proposed {sum(bool(one.proposed) for one in half)}, "
                f"proposed and failing {sum(bool(one.proposed and one.error) for one in half)}"
            )
    assert not [one.name for one in fixes if one.proposed and one.error]


async def fix(server: AgentServer, case: NotebookError) -> Fix:
    """Run one failing cell in a fresh kernel, ask for a fix, and run the proposed cell."""
    directory = re.sub(r"\W+", "-", case.name)
    (server.root / directory).mkdir(parents=True, exist_ok=True)
    kernel = await server.start_kernel(f"{directory}/fix.ipynb")
    async with Notebook(server, kernel) as notebook:
        assert (await notebook.run(case.setup)).status == "ok"
        assert (await notebook.run(case.cell)).status == "error"
        started = time.monotonic()
        asked = await notebook.run("%agent fix", ("n",) * 8)
        seconds = time.monotonic() - started
        proposed = next((str(one["text"]) for one in asked.payload if one.get("source") == "set_next_input"), "")
        error, right = "", False
        if proposed:
            ran = await notebook.run(proposed)
            error = "" if ran.status == "ok" else ran.error
            printed = bool(re.search(case.prints, ran.printed, re.IGNORECASE))
            holds = "HOLDS" in (await notebook.run(JUDGE.format(expression=case.holds))).printed
            right = not error and printed and holds
        await notebook.shut_down()
    print(f"{seconds:6.1f} s {case.name}: {'right' if right else error or 'wrong'}", file=sys.__stderr__, flush=True)
    return Fix(case.name, case.held_out, proposed, error, right, round(seconds, 1), asked.plain)
