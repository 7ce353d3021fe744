"""A stand-in for the user's kernel: one process with a lasting namespace, in which the agent's code really runs.

Speaks JSON lines: {"code", "cell"} in; {"stdout", "value", "error", "figures"} out. ``figures`` contains the numbers
that were plotted, so that a test can check a picture.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import Media, Status
from agent_kernel.core.protocols import RunResult, ToolContext, ToolOutput, ToolSpec
from agent_kernel.sandbox.worker.missing_imports import missing_imports
from agent_kernel.tools.code.python import SANDBOXED
from agent_kernel.tools.code.sandbox_environment import format_result
from tests.narrowing import not_none

ROOT = Path(__file__).parents[2]


class NotebookProcess:
    """A process with a namespace; ``async with`` starts it. ``figures`` collects the figures that the agent's code
    plotted.
    """

    def __init__(self) -> None:
        self.figures: list[list[list[float]]] = []

    async def __aenter__(self) -> NotebookProcess:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)},
            limit=2**26,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        not_none(self._process.stdin).close()
        await self._process.wait()

    async def run(self, code: str) -> dict[str, Any]:
        not_none(self._process.stdin).write(json.dumps({"code": code}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await asyncio.wait_for(not_none(self._process.stdout).readline(), 60))
        return answer

    async def cell(self, code: str) -> None:
        """Run a cell of the user. Raises AssertionError if it fails."""
        answer = await self.run(code)
        assert not answer["error"], answer["error"]

    async def holds(self, expression: str) -> bool:
        """Return True if the expression is true in the namespace, and False if it is false or raises an error."""
        answer = await self.run(f"bool({expression})")
        return str(answer["value"]) == "True"

    async def notes(self, prompt: str) -> tuple[str, str]:
        """Return what the magic would send: the prompt without braces, and summaries of the variables that it names."""
        code = (
            "from agent_kernel.notebook.kernel import variable_summary as _v\n"
            f"_p = {prompt!r}\n_n = _v.named_in_braces(_p, globals())\n"
            "_t = [n for n in _v.tables_mentioned(_p, globals()) if n not in _n]\n"
            "print(repr((_v.without_braces(_p, _n), '\\n'.join(_v.summary(n, globals()[n]) for n in [*_n, *_t]))))"
        )
        answer = await self.run(code)
        said: tuple[str, str] = ast.literal_eval(answer["stdout"])
        return said


class NotebookPython:
    """The ``python`` tool on a NotebookProcess. It is of a kind that needs no approval."""

    spec: ToolSpec = SANDBOXED

    def __init__(self, notebook: NotebookProcess) -> None:
        self._notebook = notebook

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        answer = await self._notebook.run(arguments["code"])
        self._notebook.figures += answer["figures"]
        media = tuple(Media.of("image/png", b"drawn") for _ in answer["figures"])
        status: Status = "error" if answer["error"] else "success"
        result = RunResult(status, answer["stdout"], "", answer["value"], answer["error"] or None, media)
        return ToolOutput(format_result(result), status, media)


def serve() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    # What the code writes to file descriptor 1 must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_run(json.loads(line)["code"], namespace)) + "\n")
        answers.flush()


def _run(code: str, namespace: dict[str, Any]) -> dict[str, Any]:
    out = io.StringIO()
    value, error = None, ""
    with contextlib.redirect_stdout(out):
        try:
            exec("\n".join(missing_imports(code, namespace)), namespace)
            tree = ast.parse(code)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<cell>", "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
        except BaseException as problem:  # noqa: BLE001  the agent's code may do anything
            error = "".join(traceback.format_exception_only(problem)).strip()
    shown = None if value is None else repr(value)
    return {"stdout": out.getvalue(), "value": shown, "error": error, "figures": _figures()}


def _figures() -> list[list[list[float]]]:
    """Return, for every open figure, the y values of its lines and the heights and widths of its bars. Close the
    figures.
    """
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return []
    found = []
    for number in plt.get_fignums():
        series: list[list[float]] = []
        for axes in plt.figure(number).axes:
            series += [[float(y) for y in line.get_ydata()] for line in axes.get_lines()]
            series += [
                [float(bar.get_height()) for bar in axes.patches],
                [float(bar.get_width()) for bar in axes.patches],
            ]
            series += [[float(y) for _, y in points.get_offsets()] for points in axes.collections]
        found.append([values for values in series if values])
    plt.close("all")
    return [series for series in found if series]


if __name__ == "__main__":
    serve()
