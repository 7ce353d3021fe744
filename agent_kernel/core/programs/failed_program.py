"""Defines a program that ended with an error, and finds the lines and expressions that failed."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from agent_kernel.core.programs.program_edits import ParsedProgram
from agent_kernel.core.programs.program_outcome import FRAME


class FailedProgram(ParsedProgram):
    """A program and the text of its error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code)
        self.text = text

    @cached_property
    def error(self) -> str:
        """The last error in ``text``, from the name of its class to the end; empty if there is none. The traceback
        and the hints before it are left out."""
        found = list(re.finditer(r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception)\b", self.text, re.MULTILINE))
        return self.text[found[-1].start() :] if found else ""

    @cached_property
    def lines(self) -> frozenset[int]:
        """The numbers of the lines of the program at which the error arose. They are found by comparing texts with the
        lines of the traceback: its line numbers cannot be used, because a kernel may have put imports before the
        program, and because frames of libraries have line numbers of their own."""
        failed = {line.strip() for _, line in FRAME.findall(self.text)} - {""}
        return frozenset(at for at, line in enumerate(self.code.splitlines(), 1) if line.strip() in failed)

    @cached_property
    def failed(self) -> list[ast.expr]:
        """The expressions on the lines that failed."""
        return [
            node for node in self.expressions if any(node.lineno <= at <= (node.end_lineno or 0) for at in self.lines)
        ]

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.failed if isinstance(node, ast.Call)]
