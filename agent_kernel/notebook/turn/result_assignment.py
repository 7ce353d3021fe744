"""Sets the variable of ``%%agent -> name: type`` after its turn: to the value of the turn's last program if that has
the type, else to the value that the constrained answer contains.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.program_value import ProgramValue
from agent_kernel.notebook.turn.answer_format import FORMS, AnswerFormat, json_text_bundle, json_value_bundle
from agent_kernel.notebook.turn.cell_options import CellOptions
from agent_kernel.notebook.turn.result_type import ResultType, resolve_type

SHOWN = 200
"""Limit of characters of a value in the line that reports the assignment."""
COMPUTED = " (computed)"
NOT_IN_BACKGROUND = "the cell of a background turn ends before its answer. Leave out -> {name}, or --background."
ONE_FORMAT = "-> {name}: {type} determines the format of the answer. Leave out -f {form}, or the type."
NO_KERNEL = "a {type} comes from a program that runs in this kernel or a draft of it. Leave out --in sandbox."
TABLE_NOTE = {
    "title": "Result",
    "text": "The last line of the program is an expression, and its value is the {type} that was asked for.",
}


class ResultAssignment(NamedTuple):
    """The variable that gets the answer of one turn. ``type`` is None if the cell names no type; the variable then gets
    the text of the answer.
    """

    name: str
    type: ResultType | None

    @classmethod
    def of(cls, request: CellOptions, namespace: Mapping[str, Any]) -> ResultAssignment | None:
        """Return the assignment for the variable that a cell names, or None if the cell names no variable. Raises
        AgentError if the assignment is not possible.
        """
        variable = request.result
        if variable is None:
            return None
        if request.background:
            raise AgentError(NOT_IN_BACKGROUND.format(name=variable.name))
        if variable.type and request.form != "md":
            raise AgentError(ONE_FORMAT.format(name=variable.name, type=variable.type, form=request.form))
        return cls(variable.name, resolve_type(variable.type, namespace) if variable.type else None)

    @property
    def is_computed(self) -> bool:
        """Whether only a program can make a value of the type."""
        return self.type is not None and self.type.schema is None

    def format(self, form: str) -> AnswerFormat:
        """Return the format of the answer. If there is a type, it determines the format; otherwise ``form``, the value
        of the option ``-f``, does."""
        if self.type is None:
            return FORMS[form]
        if self.is_computed:
            note = {**TABLE_NOTE, "text": TABLE_NOTE["text"].format(type=self.type.text)}
            return AnswerFormat(notes=(note,), fields={"tool_choice": "python"})
        return AnswerFormat(json_value_bundle if self.type.wrapped else json_text_bundle, output=self.type.output)

    def check_place(self, place: str) -> None:
        """Raise AgentError if only a program can make the value and ``place``, where the Python of the turn runs, is
        the sandbox. Such a value cannot be read from the sandbox."""
        if self.type is not None and self.is_computed and place == "sandbox":
            raise AgentError(NO_KERNEL.format(type=self.type.text))

    def find_value(
        self, answer: str, program_value: ProgramValue | None, run_in_kernel: Callable[[], ProgramValue | None]
    ) -> tuple[Any, str]:
        """Return (value, COMPUTED) if a program computed the value, or (value, "") if it comes from the answer.
        ``program_value`` is the value of the last program. If that value exists only in a draft, ``run_in_kernel`` is
        called, which asks the user and runs the program in the kernel. Raises AgentError if neither the program nor
        the answer has a value of the type."""
        if self.type is None:
            return answer, ""
        if program_value is not None and program_value.elsewhere and self.type.may_be(program_value):
            program_value = run_in_kernel() or program_value
        if program_value is not None and not program_value.elsewhere:
            try:
                return self.type.convert_value(program_value.value), COMPUTED
            except ValueError:
                pass  # the program computed another value, such as an intermediate result
        try:
            return self.type.read_answer(answer), ""
        except ValueError:
            raise AgentError(self._misfit(answer, program_value)) from None

    def set(self, shell: Any, value: Any, how: str, screen: Screen) -> None:
        """Set the variable and report it in one line. ``how`` is added to the line: COMPUTED or ""."""
        shell.push({self.name: value})
        screen.line(f"{self.name}: {self.type.text if self.type else 'str'} = {_describe(value)}{how}")

    def _misfit(self, answer: str, program_value: ProgramValue | None) -> str:
        assert self.type is not None
        type_text = f"{'an' if self.type.text[0] in 'aeiou' else 'a'} {self.type.text}"
        if not self.is_computed:
            return f"The answer {_describe(answer)} is not {type_text}, so {self.name} was not set."
        if program_value is not None and program_value.elsewhere and self.type.may_be(program_value):
            only = f"The {program_value.elsewhere} exists only in a draft, so {self.name} was not set."
            return f"{only} --in live runs the program in your kernel."
        return f"No program of this turn ended with {type_text}, so {self.name} was not set."


def _describe(value: Any) -> str:
    """Describe a value in one short line. Does not raise if the ``repr`` of a user's class raises."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {shape}"
    shorter = reprlib.Repr()
    shorter.maxstring = shorter.maxother = shorter.maxlist = SHOWN // 2
    text = " ".join(shorter.repr(value).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
