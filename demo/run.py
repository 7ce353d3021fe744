"""Runs a notebook through a server, streams it to the terminal, and prints the cost of each turn.

Exit codes: 0 every turn was committed, 1 a turn or a cell failed, 2 the server or the kernel failed, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
from nbformat import NotebookNode

from demo.terminal import Terminal
from jupyter_ext.headless.notebook_kernel import CellOutputs, KernelDied, NotebookKernel, notebook_kernel
from jupyter_ext.headless.server_process import ServerFailed, TemporaryServer, jupyter_server

CELL_S = 600.0
"""Maximum time of a cell; the default model on two slow cores needs about a tenth of it."""
ANSWER_LINES = 8


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one agent cell; ``usage`` has the wire format."""

    cell: int
    question: str
    state: str
    answer: str
    usage: Mapping[str, float]

    def lines(self) -> list[str]:
        """Return one line of figures, then the answer."""
        return [self._row(), *(f"      {line}" for line in self.answer.strip().splitlines()[:ANSWER_LINES])]

    def _row(self) -> str:
        tokens = (self.usage.get(f"{kind}_tokens", 0) for kind in ("prompt", "reused", "completion"))
        counts = " ".join(f"{count:>7.0f}" for count in tokens)
        first, total = self.usage.get("first_token_s", 0), self.usage.get("seconds", 0)
        return f"{self.cell:>4}  {self.state:<11} {counts} {first:>8.2f} s {total:>7.1f} s  {self.question}"


HEADER = "cell  state        prompt  reused  answer  1st token     total  question"


class Run:
    """One notebook in one kernel; saved through the server after every cell, as a front end does."""

    def __init__(
        self, server: TemporaryServer, kernel: NotebookKernel, path: str, notebook: NotebookNode, out: Terminal
    ) -> None:
        self._server = server
        self._kernel = kernel
        self._path = path
        self._notebook = notebook
        self._out = out
        self._outputs = CellOutputs()
        self.reports: list[Report] = []

    async def all(self) -> bool:
        """Run all cells and stop at the first failure; True if every cell ran and every turn was committed."""
        for number, cell in enumerate(self._notebook.cells, start=1):
            if cell.cell_type == "code" and not await self._cell(number, cell):
                return False
        return True

    async def _cell(self, number: int, cell: NotebookNode) -> bool:
        self._out.cell(number, cell)
        failed = False
        async with asyncio.timeout(CELL_S), aclosing(self._kernel.execute(cell.source)) as messages:
            async for message in messages:
                self._outputs.apply(message, cell)
                self._out.message(message)
                failed |= message["msg_type"] == "execute_reply" and message["content"]["status"] != "ok"
        await self._save()
        if cell.source.startswith("%%agent"):
            report = await self._report(number, cell)
            self.reports.append(report)
            failed |= report.state != "committed"
        return not failed

    async def _save(self) -> None:
        body = {"type": "notebook", "format": "json", "content": self._notebook}
        await self._server.call("PUT", f"api/contents/{self._path}", body)

    async def _report(self, number: int, cell: NotebookNode) -> Report:
        binding = await self._server.call("GET", f"agent/v1/binding?path={quote(self._path)}")
        session = binding["session"]["id"]
        stored = await self._server.call("GET", f"agent/v1/sessions/{session}/items")
        turn = stored["turns"][-1]
        question = " ".join(cell.source.split("\n", 1)[-1].split())
        return Report(number, question, turn["state"], answer(stored["items"], turn["id"]), turn["usage"])


def answer(items: Sequence[Mapping[str, Any]], turn: str) -> str:
    """Return the last assistant text of the turn."""
    said = [item["message"] for item in items if item["turn"] == turn and item["message"]["role"] == "assistant"]
    return str(said[-1]["content"]) if said else ""


def copy_notebook(source: Path, folder: Path) -> NotebookNode:
    """Copy the notebook into ``folder`` and return the copy. Removes the data of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (folder / ".data", *folder.glob(f"{source.stem}.agent*")):
        if stale.is_dir():
            shutil.rmtree(stale)
        else:
            stale.unlink(missing_ok=True)
    shutil.copyfile(source, folder / source.name)
    return nbformat.read(folder / source.name, as_version=4)


async def run(source: Path, folder: Path) -> int:
    notebook = copy_notebook(source, folder)
    out = Terminal(sys.stdout)
    started = time.monotonic()
    async with jupyter_server(folder, folder / "server.log") as server:
        out.line(f"Jupyter server with agent-kernel at {server.url} (log: {folder / 'server.log'})")
        async with notebook_kernel(server, source.name) as kernel:
            execution = Run(server, kernel, source.name, notebook, out)
            succeeded = await execution.all()
    out.line()
    out.line(HEADER)
    for report in execution.reports:
        for line in report.lines():
            out.line(line)
    sidecar = folder / f"{source.stem}.agent.json"
    out.line(f"\n{folder / source.name} and {sidecar.name}, {time.monotonic() - started:.0f} s")
    if not sidecar.exists():
        out.line(f"{sidecar} was not written; the log of the server is in {folder / 'server.log'}.")
    return 0 if succeeded and sidecar.exists() else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("notebook", type=Path, nargs="?", default=Path("notebooks/quickstart.ipynb"))
    parser.add_argument("--into", type=Path, default=Path("build/demo"), help="where the executed notebook goes")
    options = parser.parse_args()
    try:
        return asyncio.run(run(options.notebook, options.into.resolve()))
    except TimeoutError:
        print(
            f"\nA cell took longer than {CELL_S:.0f} s. The log of the server is in {options.into / 'server.log'}.",
            file=sys.stderr,
        )
        return 2
    except (ServerFailed, KernelDied) as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped, and the server and its kernel with it.", file=sys.stderr)
        return 130
