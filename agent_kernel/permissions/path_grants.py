"""Asks a person to allow sandboxed code to open paths outside the work directory, and finds the paths that were
allowed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.protocols import ToolContext, ToolSpec
from agent_kernel.permissions.approval_answer import Answer, hash_shown_call
from agent_kernel.permissions.gate import Gate, create_question

KIND = "path"
PATH = ToolSpec("path", "", {}, kind=KIND, where="sandbox", label="A path")
AllowedPaths = tuple[tuple[Path, ...], tuple[Path, ...]]


class ApprovedPaths:
    """The ``PathPermissions`` of one call: the paths outside the work directory that its sandboxed code may open.

    A grant applies to the file or directory to which the path led when it was granted. If the path has since been
    replaced with a link to another place, which code with write access can do, the grant no longer counts.
    """

    def __init__(self, gate: Gate, context: ToolContext) -> None:
        self._gate = gate
        self._context = context

    async def find_allowed(self) -> AllowedPaths:
        ruling = self._gate.ruling(PATH)
        if ruling.permission == "deny" or ruling.firm or not self._gate.remembered:
            return (), ()
        granted = [grant for grant in await self._grants() if grant.decision == "approve"]
        return tuple(self._select_valid(granted, "read:")), tuple(self._select_valid(granted, "write:"))

    async def ask(self, path: Path, *, write: bool = False) -> Path | None:
        real = _resolve(path, there=not write)
        if real is None:
            return None
        spec = replace(PATH, name=path_scope(real, write=write))
        ruling = self._gate.ruling(PATH)
        if ruling.permission == "deny" or self._is_hidden(real):
            return None
        if ruling.permission == "auto":
            return real
        if any(grant.tool == spec.name and grant.decision == "deny" for grant in await self._grants()):
            return None
        if self._gate.ask is None and not self._gate.answers & {KIND, "*"}:
            return None
        return await self._ask_person(spec, real, firm=ruling.firm)

    async def _ask_person(self, spec: ToolSpec, real: Path, *, firm: bool) -> Path | None:
        write = spec.name.startswith("write:")
        question = replace(create_question(spec, self._context), tool=spec.name, shown=_hash(spec, real))
        folder = ("folder",) if self._may_be_given(real, real.parent) else ()
        required = _create_request(self._gate, question, real, () if firm else ("session", *folder, "never"))

        def grant(answer: Answer) -> Grant:
            chosen = real.parent if answer.remember == "folder" else real
            return Grant(KIND, path_scope(chosen, write=write), answer.decision)

        verdict = await self._gate.ask_question(question, required, self._context, grant)
        if not verdict.allowed:
            return None
        return real.parent if verdict.remember == "folder" else real

    async def _grants(self) -> list[Grant]:
        grants = await self._gate.approvals.grants.grants(self._context.key)
        return [grant for grant in grants if grant.kind == KIND]

    def _select_valid(self, grants: list[Grant], access: str) -> list[Path]:
        paths = [Path(grant.tool.removeprefix(access)) for grant in grants if grant.tool.startswith(access)]
        return [path for path in paths if _leads_where_it_says(path) and not self._is_hidden(path)]

    def _is_hidden(self, real: Path) -> bool:
        hidden = [place.resolve() for place in self._gate.hidden]
        return any(real.is_relative_to(place) or place.is_relative_to(real) for place in hidden)

    def _may_be_given(self, real: Path, folder: Path) -> bool:
        """Return whether the user may be offered to allow the whole ``folder`` that contains the file ``real``. The
        folder may not be hidden, the home directory, or a directory above the home directory. ``real`` may not be a
        directory itself."""
        above_home = Path.home().resolve().is_relative_to(folder)
        return not (real.is_dir() or above_home or self._is_hidden(folder))


def path_scope(path: Path, *, write: bool) -> str:
    return f"{'write' if write else 'read'}:{path}"


def _create_request(gate: Gate, question: ApprovalQuestion, real: Path, remember: tuple[str, ...]) -> ApprovalRequired:
    access = question.tool.partition(":")[0]
    return ApprovalRequired(
        question.id,
        question.call,
        KIND,
        KIND,
        "sandbox",
        f"{access} {str(real) if str(real).isprintable() else ascii(str(real))}",
        {"path": str(real), "access": access},
        label=PATH.label,
        shown=question.shown,
        remember=remember,
        until=gate.deadline(question),
    )


def _hash(spec: ToolSpec, real: Path) -> str:
    return hash_shown_call(KIND, spec.where, {"path": str(real), "access": spec.name.partition(":")[0]})


def _leads_where_it_says(path: Path) -> bool:
    return _resolve(path, there=False) == path


def _resolve(path: Path, *, there: bool) -> Path | None:
    try:
        return path.resolve(strict=there)
    except (OSError, RuntimeError, ValueError):  # the path does not exist, a link leads to itself, or it contains NUL
        return None
