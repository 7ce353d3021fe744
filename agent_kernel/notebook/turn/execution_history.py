"""Records the cells that ran since the kernel started, and how each of them ended. Code that the agent runs is not
recorded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.wire.agent_cells import prompt_of
from agent_kernel.notebook.kernel.cell_identity import metadata_of_code, parent_request
from agent_kernel.notebook.kernel.inspection import format_traceback
from agent_kernel.notebook.kernel.one_line_errors import AgentError, AgentInterrupted

KEPT = 500
KEPT_FAILURES = 20


class ExecutionHistory:
    """Records the executions of cells. ``failures`` maps execution numbers to (number, cell, source, traceback) of the
    most recent cells that failed. Only names and text are kept, so that no exception or value stays alive."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._ran: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._prompts: set[int] = set()
        self.failures = RecentEntries[int, tuple[int, str, str, str]](KEPT_FAILURES)
        shell.events.register("post_run_cell", self._record_result)

    def close(self) -> None:
        self._shell.events.unregister("post_run_cell", self._record_result)

    @property
    def failure(self) -> tuple[int, str, str, str] | None:
        """The last cell that failed, as (number, cell, source, traceback); None if no cell failed."""
        return next(reversed(self.failures.values()), None)

    def of(self, number: int) -> tuple[str, str]:
        """Return (cell, error) of the execution with this number: the cell id, or "" if it is unknown, and the name of
        the error's class, or "" if there was no error."""
        return self._ran.get(number, ("", ""))

    def is_prompt(self, number: int) -> bool:
        """Return whether the execution with this number was that of a prompt cell; False if the number is unknown."""
        return number in self._prompts

    @property
    def cells(self) -> list[str]:
        """The ids of the cells that ran, each once, in the order of their last execution. Empty if the front end sends
        no ids."""
        ran = [cell for cell, _ in self._ran.values() if cell]
        return list(dict.fromkeys(reversed(ran)))[::-1]

    def _record_result(self, result: Any) -> None:
        if not result.info.store_history or result.execution_count is None:
            return
        cell = parent_request(self._shell).get("metadata", {}).get("cellId")
        cell = cell if isinstance(cell, str) else ""
        error = result.error_before_exec or result.error_in_exec
        number = result.execution_count
        self._ran[number] = (cell, type(error).__name__ if error else "")
        source = str(result.info.raw_cell)
        if prompt_of(source, metadata_of_code(self._shell, source)) is not None:
            self._prompts.add(number)
        while len(self._ran) > KEPT:
            self._prompts.discard(self._ran.popitem(last=False)[0])
        if error is not None and not isinstance(error, AgentError | AgentInterrupted | KeyboardInterrupt):
            numbers = getattr(self._shell.compile, "_filename_map", {})
            traceback = format_traceback(error, lambda file: f"In[{numbers[file]}]" if file in numbers else "")
            self.failures[number] = (number, cell, source, traceback)
