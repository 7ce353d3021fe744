"""A namespace in the product's sandbox in which tests run the solutions of tasks and evaluate their checks."""

from __future__ import annotations

from pathlib import Path

from agent_kernel.core.protocols import RunResult
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.session import SessionKey
from agent_kernel.evaluation import figure_data

INSTALLED = """
import matplotlib.figure as _f, sys, types as _t
_m = sys.modules['figure_data'] = _t.ModuleType('figure_data')
exec({source!r}, _m.__dict__)
_m.SHOWN = []
def _savefig(self, *args, _render=_f.Figure.savefig, _m=_m, **kwargs):
    _render(self, *args, **kwargs)
    _m.SHOWN.append(_m.describe(self))
_f.Figure.savefig = _savefig
"""
"""Keeps the description of each figure that is rendered."""


class SandboxNotebook:
    """One session of a sandbox. Call ``prepare`` first. Its code reads and writes files in the work directory."""

    def __init__(self, sandbox: Sandbox, key: SessionKey) -> None:
        self._sandbox = sandbox
        self._key = key

    async def prepare(self, setup: str, *, figures: bool) -> None:
        """Run the setup. With ``figures``, pictures can be checked, at the cost of importing matplotlib."""
        if figures:
            await self._cell(INSTALLED.format(source=Path(figure_data.__file__).read_text(encoding="utf-8")))
        await self._cell(setup)

    async def forget_figures(self) -> None:
        await self._cell("sys.modules['figure_data'].SHOWN.clear()")

    async def holds(self, expression: str) -> bool:
        """Return True if the expression is true, and False if it is false or raises an error."""
        return (await self.run(f"bool({expression})")).value == "True"

    async def draws(self, expression: str) -> bool:
        return await self.holds(f"any(({expression}) for figure in sys.modules['figure_data'].SHOWN)")

    async def run(self, code: str) -> RunResult:
        return await self._sandbox.run(self._key, code)

    async def close(self) -> None:
        await self._sandbox.close(self._key)

    async def _cell(self, code: str) -> RunResult:
        result = await self.run(code)
        assert result.status == "success", result.error
        return result
