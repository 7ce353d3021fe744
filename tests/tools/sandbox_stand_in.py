"""A stand-in for a sandbox: it answers every run with one result, and records the requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_kernel.core.protocols import RunResult, Variable, VariableInfo, Work
from agent_kernel.core.session import SessionKey


class RanSandbox:
    def __init__(self, result: RunResult, workdir: Path = Path("/nowhere"), gone: str = "") -> None:
        self.result = result
        self.works: list[Work] = []
        self.read: Sequence[Path] = ()
        self.write: Sequence[Path] = ()
        self.resets = 0
        self._workdir = workdir
        self._gone = gone

    async def run(
        self,
        session: SessionKey,
        work: Work | str,
        *,
        on_output: Callable[[str, str], None] = lambda stream, text: None,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> RunResult:
        self.works.append(Work(work) if isinstance(work, str) else work)
        self.read, self.write = read, write
        on_output("stdout", self.result.stdout)
        return self.result

    async def reset(self, session: SessionKey) -> None:
        self.resets += 1

    async def take(self, session: SessionKey, name: str) -> Variable:
        return Variable(name, "json", b"1", "int")

    async def variables(self, session: SessionKey) -> Sequence[VariableInfo]:
        return (VariableInfo("x", "int"),)

    def lost(self, session: SessionKey) -> str:
        return self._gone

    def has_run(self, session: SessionKey) -> bool:
        return True

    def workdir(self, session: SessionKey) -> Path:
        return self._workdir

    async def report(self) -> Mapping[str, Any]:
        return {}

    async def close(self, session: SessionKey, *, remove: bool = False) -> None: ...

    async def aclose(self) -> None: ...
