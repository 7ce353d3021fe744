"""Decides from the syntax trees whether a corrected cell hides the error of the failed cell instead of correcting it.

A corrected cell hides the error if it catches the error around the failing statement or around that statement's
replacement, or if it leaves the statement out. Everything else counts as a correction, whether it is right or not.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent_kernel.core.programs.syntax_tree import parse
from agent_kernel.notebook.kernel.python_syntax import modified_in_place, smallest_statement

CATCHES = "HiddenError: the code catches {error} at the statement that failed. Correct the cause of the error."
LEAVES_OUT = "HiddenError: the code leaves out the statement that failed. Correct it."
BUILTINS = frozenset(dir(builtins))
Imports = ast.Import | ast.ImportFrom


def find_hidden_error(source: str, lines: Iterable[int], error: str, proposed: str) -> str:
    """Return why ``proposed`` hides the error of ``source``, or "" if it does not.

    Both cells are plain Python. ``lines`` are the lines of ``source`` that the traceback names, and ``error`` is the
    name of the error's class as a traceback shows it, such as ``KeyError`` or ``pandas.errors.ParserError``. A cell
    that cannot be parsed hides nothing."""
    before, after = parse(source), parse(proposed)
    if before is None or after is None:
        return ""
    keys_before = {statement.key for statement in _statements(before)}
    failing = [Statement.of(node) for line in lines if (node := smallest_statement(before, line))]
    added = [
        statement for statement in _statements(after) if statement.key not in keys_before and not statement.is_message
    ]
    keys_after = {statement.key for statement in _statements(after)}
    classes = _class_names(error)
    suspects = {statement.key for statement in failing} | {
        statement.key for statement in added if any(map(statement.replaces, failing))
    }
    old = list(_suppressors(before, classes))
    for new in _suppressors(after, classes):
        if new.keys & suspects and not any(new.continues(suppressor, failing) for suppressor in old):
            return CATCHES.format(error=error.rpartition(".")[2])
    for one in failing:
        if one.key not in keys_after and not one.may_be_left_out(added):
            return LEAVES_OUT
    return ""


class Statement(NamedTuple):
    """A statement without the statements inside it. ``key`` is equal for equal code. ``names`` are the names that the
    statement uses or binds, without those of builtins. ``binds`` are the names that it binds or modifies in place."""

    node: ast.stmt
    key: str
    names: frozenset[str]
    binds: frozenset[str]

    @classmethod
    def of(cls, node: ast.stmt) -> Statement:
        parts = [child for child in ast.iter_child_nodes(node) if not isinstance(child, INNER)]
        walked = [each for part in parts for each in ast.walk(part)]
        binds = {each.id for each in walked if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        names = {each.id for each in walked if isinstance(each, ast.Name)} - BUILTINS
        own = getattr(node, "name", "")
        binds |= {own} if own else set()
        for alias in (each for each in walked if isinstance(each, ast.alias)):
            binds.add(alias.asname or alias.name.partition(".")[0])
        if not hasattr(node, "body"):
            binds |= modified_in_place(ast.unparse(node))
        key = " ".join([type(node).__name__, own, getattr(node, "module", None) or "", *map(ast.dump, parts)])
        return cls(node, key, frozenset(names | binds), frozenset(binds))

    @property
    def is_message(self) -> bool:
        """Whether the statement does nothing but show constant text, as in ``print("failed")``."""
        if isinstance(self.node, ast.Pass):
            return True
        return isinstance(self.node, ast.Expr) and not self.names and not _computes(self.node.value)

    def replaces(self, failing: Statement) -> bool:
        """Return whether this new statement can be the replacement of ``failing``: the two share a name, and if
        ``failing`` binds a name, this statement binds one too."""
        if isinstance(failing.node, Imports):
            return True
        if isinstance(self.node, Imports) or (failing.binds and not self.binds):
            return False
        return bool(self.names & failing.names) if failing.names else True

    def may_be_left_out(self, added: Sequence[Statement]) -> bool:
        """Return whether the corrected cell may leave out this failing statement: one of the ``added`` statements
        replaces it, or the statement only removed a name that does not exist."""
        return isinstance(self.node, ast.Delete) or any(statement.replaces(self) for statement in added)


INNER = (ast.stmt, ast.ExceptHandler, ast.match_case)


class Suppressor(NamedTuple):
    """A block in which an error is caught and not raised again. ``keys`` are the keys of the statements in the block,
    ``handlers`` is the code that catches the error."""

    keys: frozenset[str]
    handlers: str = ""

    def continues(self, old: Suppressor, failing: Sequence[Statement]) -> bool:
        """Return whether this block was already in the failed cell, as ``old``, and no failing statement was moved
        into it."""
        moved = {statement.key for statement in failing} & self.keys
        return not moved and (self.handlers == old.handlers or bool(self.keys & old.keys))


def _statements(tree: ast.Module) -> Iterator[Statement]:
    return (Statement.of(node) for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _computes(value: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp | ast.Compare | ast.Subscript) for node in ast.walk(value))


def _class_names(error: str) -> frozenset[str]:
    """Return the names of the error's class and of its base classes. If the class is not loaded, return only ``error``,
    its name."""
    module, _, name = error.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), name, None)
    bases = found.__mro__ if isinstance(found, type) else (Exception, BaseException)
    return frozenset({name, *(base.__name__ for base in bases)}) - {"object"}


def _suppressors(tree: ast.Module, classes: frozenset[str]) -> Iterator[Suppressor]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.TryStar):
            caught = [handler for handler in node.handlers if _catches(handler.type, classes) and not _raises(handler)]
            if caught:
                yield Suppressor(_keys(node.body), " ".join(map(ast.dump, node.handlers)))
        elif isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            found = [call for call in calls if _name(call.func) == "suppress"]
            if any(_catches(argument, classes) for call in found for argument in call.args):
                yield Suppressor(_keys(node.body), " ".join(map(ast.dump, found)))


def _catches(caught: ast.expr | None, classes: frozenset[str]) -> bool:
    if caught is None:
        return True
    one_or_more = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(_name(class_node) in classes for class_node in one_or_more)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def _keys(body: Sequence[ast.stmt]) -> frozenset[str]:
    return frozenset(
        Statement.of(node).key for statement in body for node in ast.walk(statement) if isinstance(node, ast.stmt)
    )


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
