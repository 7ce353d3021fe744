"""A notebook whose namespace lives in the product's own sandbox: cells, checks, and the notes that the magic gives."""

from __future__ import annotations

import ast
from pathlib import Path

from agent_kernel.core.protocols import RunResult, Sandbox
from agent_kernel.core.session import SessionKey
from agent_kernel.notebook.kernel import variable_summary
from tests.benchmarks import drawn

INSTALLED = (
    "import types as _t\n_m = _t.ModuleType({name!r})\nexec({source!r}, _m.__dict__)\nsys.modules[{name!r}] = _m"
)
NOTES = """
_v, _p = sys.modules["variables"], {prompt!r}
_n = _v.named_in_braces(_p, globals())
_t = [name for name in _v.tables_mentioned(_p, globals()) if name not in _n]
print(repr((_v.without_braces(_p, _n), "\\n".join(_v.summary(name, globals()[name]) for name in [*_n, *_t]))))
"""


class SandboxNotebook:
    """One session of a sandbox. ``prepare`` first; the work directory is where its code reads and writes files."""

    def __init__(self, sandbox: Sandbox, key: SessionKey) -> None:
        self._sandbox = sandbox
        self._key = key

    async def prepare(self, setup: str, *, figures: bool) -> None:
        """``figures``: pictures will be checked (costs the import of matplotlib)."""
        await self._cell(INSTALLED.format(name="variables", source=_source(variable_summary)))
        if figures:
            await self._cell(INSTALLED.format(name="drawn", source=_source(drawn)) + "\nsys.modules['drawn'].watch()")
        await self._cell(setup)

    async def notes(self, prompt: str) -> tuple[str, str]:
        """The prompt without braces, and the facts about the variables it names, by the magic's own code."""
        said: tuple[str, str] = ast.literal_eval((await self._cell(NOTES.format(prompt=prompt))).stdout)
        return said

    async def forget_figures(self) -> None:
        await self._cell("sys.modules['drawn'].SHOWN.clear()")

    async def holds(self, expression: str) -> bool:
        """Whether it is true; False where it raises."""
        return (await self.run(f"bool({expression})")).value == "True"

    async def draws(self, expression: str) -> bool:
        return await self.holds(f"any(({expression}) for figure in sys.modules['drawn'].SHOWN)")

    async def run(self, code: str) -> RunResult:
        return await self._sandbox.run(self._key, code)

    async def close(self) -> None:
        await self._sandbox.close(self._key)

    async def _cell(self, code: str) -> RunResult:
        result = await self.run(code)
        assert result.status == "success", result.error
        return result


def _source(module: object) -> str:
    return Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8")
