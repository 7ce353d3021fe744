"""Finds out whether a restart of the kernel deleted variables that code of earlier turns had defined there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent_kernel.core.messages import Message
from agent_kernel.core.programs.syntax_tree import parse
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, SessionKey, Turn
from agent_kernel.sessions.stored_annotations import StoredAnnotations
from agent_kernel.tools.code.python import DRAFT, LIVE
from agent_kernel.tools.notebook.cell_edits import RUN
from agent_kernel.tools.notebook.notebook_tools import RUN_CELL

LOST = "The kernel is another one than in the last turn: variables defined earlier are gone."
SEARCHED_TURNS = 20
"""Number of newest turns in which the code is searched."""
_INNER_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


async def has_lost_variables(store: SessionStore, key: SessionKey, epoch: str) -> bool:
    """Return whether the newest earlier turn with a kernel ran in another epoch of the kernel than ``epoch``, and a
    turn of that epoch defined variables there. A restart of the kernel begins a new epoch."""
    turns = [turn for turn in await store.turns(key, SEARCHED_TURNS) if turn.epoch and turn.state != "open"]
    if not epoch or not turns or turns[-1].epoch == epoch:
        return False
    for turn in reversed(turns):
        if turn.epoch == turns[-1].epoch and _has_defined(turn, await store.of_turn(turn)):
            return True
    return False


def _has_defined(turn: Turn, items: list[Item]) -> bool:
    annotations = StoredAnnotations(turn.record)
    calls = {call.id: call for item in items for call in item.message.calls}
    for message in (item.message for item in items if item.message.role == "tool"):
        call = calls.get(message.call_id or "")
        edited = annotations.take_edit(message.call_id or "")
        if call is None or not _may_have_changed(turn, message):
            continue
        if call.name in (RUN.name, RUN_CELL.name):
            return True
        code = edited if edited is not None else str(call.arguments.get("code", ""))  # the code that ran
        if call.name == LIVE.name and _defines_names(code, message):
            return True
    return False


def _may_have_changed(turn: Turn, message: Message) -> bool:
    """Return whether the call of a result may have changed variables. A draft undoes what a failed call changed. A call
    that was stopped may have been stopped before its code ran, so it does not count."""
    kept_after = ("success",) if turn.where == DRAFT.where else ("success", "error", "timeout")
    return message.status in kept_after


def _defines_names(code: str, message: Message) -> bool:
    """Return whether the code defines names at module level. Code with magics is not plain Python and may define
    some."""
    tree = parse(code)
    return message.status == "success" if tree is None else any(map(_binds, _module_nodes(tree)))


def _module_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes whose names belong to the module, and not to a function, a class or a comprehension in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *_INNER_SCOPES)):
            yield from _module_nodes(child)


def _binds(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Store)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias))
