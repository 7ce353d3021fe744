"""Holds the client tools of this kernel by name. Client tools are tools whose calls run in the kernel: built-in ones
and the user's own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from agent_kernel.notebook.kernel import inspection
from agent_kernel.notebook.kernel.capture import Listener, Show
from agent_kernel.notebook.kernel.live_execution import ExecutionOutcome, LiveCode
from agent_kernel.notebook.turn.execution_history import ExecutionHistory
from agent_kernel.notebook.turn.user_functions import UserFunctions

Run: TypeAlias = Callable[[Mapping[str, Any], Listener, Show], ExecutionOutcome]


class ClientTool(NamedTuple):
    """One client tool. If ``only_reads`` is true, the tool changes nothing, and its result is only text. ``code``
    returns, for display, the code that a call will run."""

    run: Run
    only_reads: bool = False
    code: Callable[[Mapping[str, Any]], str] = lambda arguments: ""


class ClientTools:
    """All client tools of a kernel. They run in the kernel's main thread as part of the agent's cell, so no call
    outlives the cell and an interrupt reaches every call."""

    def __init__(self, shell: Any, code: LiveCode, executions: ExecutionHistory, functions: UserFunctions) -> None:
        self._live = code
        self._functions = functions
        self._declared: set[str] = set()
        runs_code = ClientTool(self._run, code=self._prepare_code)
        self._table: dict[str, ClientTool] = {
            "python": runs_code,
            "run_cell": runs_code,
            "variables": _reader(lambda arguments: inspection.variables(shell, str(arguments.get("name", "")))),
            "last_error": _reader(lambda arguments: inspection.last_error(shell, executions)),
            "executions": _reader(
                lambda arguments: inspection.executions(
                    shell, executions, tuple(map(int, arguments.get("numbers") or ()))
                )
            ),
        }

    def declare(self) -> list[str]:
        """Return the names of the tools for the field ``client_tools`` of a turn's request."""
        names = [*self._table, *(name for name in self._functions.registered if name not in self._table)]
        self._declared.update(names)
        return names

    def knows(self, name: str) -> bool:
        """Return True if a turn of this kernel has declared ``name`` as a client tool. A call of any other client tool
        is for an open page of the notebook, which claims it."""
        return name in self._declared

    def find(self, name: str, *, returns_value: bool = False) -> ClientTool | None:
        """Return the tool ``name``, or None if this kernel has no such tool. With ``returns_value``, the outcome of a
        tool that runs code includes the value of the program's last statement."""
        if name in self._table:
            tool = self._table[name]
            runs_code = tool.code == self._prepare_code
            return tool._replace(run=partial(self._run, returns_value=True)) if runs_code and returns_value else tool
        function = self._functions.registered.get(name)
        if function is None:
            return None
        return ClientTool(
            lambda arguments, listener, show: self._live.call(function.function, arguments, listener, show)
        )

    def _prepare_code(self, arguments: Mapping[str, Any]) -> str:
        return self._live.prepare_code(str(arguments.get("code", "")))

    def _run(
        self, arguments: Mapping[str, Any], listener: Listener, show: Show, *, returns_value: bool = False
    ) -> ExecutionOutcome:
        return self._live.run(self._prepare_code(arguments), listener, show, returns_value=returns_value)


def _reader(read: Callable[[Mapping[str, Any]], str]) -> ClientTool:
    """Return a tool that only reads. ``read`` converts the arguments of a call to the text of its result."""

    def run(arguments: Mapping[str, Any], listener: Listener, show: Show) -> ExecutionOutcome:
        return ExecutionOutcome("success", read(arguments), "", (), interrupted=False)

    return ClientTool(run, only_reads=True)
