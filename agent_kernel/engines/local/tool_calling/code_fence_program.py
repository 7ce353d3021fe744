"""Writes one program: decodes it, and completes it where a small model leaves something out that the question or the
description of the data asks for."""

from __future__ import annotations

import textwrap
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_kernel.core.messages import Usage
from agent_kernel.core.programs.kept_variables import with_kept_variables
from agent_kernel.core.programs.program_edits import ParsedProgram
from agent_kernel.core.programs.program_rules import follow_question, rewrite_mistakes
from agent_kernel.core.programs.question_coverage import uncovered_sentences
from agent_kernel.core.programs.question_mistakes import with_summed_column
from agent_kernel.core.programs.syntax_tree import unexpected_indent
from agent_kernel.engines.local.backend import DecodingOptions
from agent_kernel.engines.local.decoding.completion import Completer, DecodedCompletion
from agent_kernel.engines.local.tool_calling import code_fence_prompt
from agent_kernel.engines.local.tool_calling.code_fence_answer_form import unset_values, with_printed_values
from agent_kernel.engines.local.tool_calling.code_fence_merge import find_missing_merge, find_missing_order
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import (
    find_missing_column,
    find_missing_conversion,
    with_check,
)
from agent_kernel.engines.local.tool_calling.code_fence_percentages import with_fractions_of_percentages

MAX_CONVERSIONS = 2
"""Number of times that a program is written again with the conversion of a column that it lacked."""
LOOP = "loop"
"""The reason for the end of decoding if the model writes the same line again and again."""
MAX_EQUAL_LINES = 4
"""Number of equal lines in a program after which its decoding ends. They may be in different places."""
MAX_INDENTED = 3
"""Maximum number of lines of a program whose unexpected indentation is removed."""
MIN_LINE = 30
"""Minimum number of characters of a line that counts for MAX_EQUAL_LINES. Shorter lines are often repeated for a good
reason, such as ``count += 1`` in branches."""


@dataclass(frozen=True, slots=True)
class DecodedProgram:
    """Code that the model has written. ``finish`` is ``stop``, ``length`` or LOOP."""

    code: str
    finish: str
    usage: Usage


async def write_program(
    prompt: str, reading: str, turn: code_fence_prompt.Exchange, decoding: DecodingOptions, completer: Completer
) -> DecodedProgram:
    """Decode one program, which begins with the lines ``reading``, and complete it.

    If the program lacks the merge of two tables, the order of rows, the conversion of a column, or the computation of
    amounts, that the hidden context of ``turn`` asks for, that line is added before it; the model writes the rest
    again, unless the line completes the program. If the program ignores sentences of the question, the model writes
    it again after these sentences as comments. If it prints a demanded value from a variable that is not set anywhere,
    the model writes the line that sets the variable.
    If the question has an example of what a function should return, a line that checks the example is added."""
    program = await _converted_program(prompt, reading, turn, decoding, completer)
    omitted = uncovered_sentences(turn.question, program.code, turn.hidden) if program.finish == "stop" else []
    # A program with a temperature is one of several, and the vote prefers those that omit fewer sentences.
    if omitted and not decoding.temperature:
        comments = "".join(f"# {sentence}\n" for sentence in omitted)
        second = await _converted_program(prompt, reading + comments, turn, decoding, completer)
        spent = program.usage + second.usage
        covers = len(uncovered_sentences(turn.question, second.code, turn.hidden)) < len(omitted)
        keeps = all(f"@{slot}[" in second.code for slot in turn.slots if f"@{slot}[" in program.code)
        program = replace(second if covers and keeps and second.finish == "stop" else program, usage=spent)
    if program.finish != "stop":
        return program
    code = with_printed_values(program.code, turn.slots)
    head, unset = unset_values(code, turn.slots)
    for name in (name for name in unset if name not in turn.variables):
        completion = DecodedCompletion(prompt)
        forced = f"{code_fence_prompt.OPEN}{head}{name} ="
        await completer.run(completion, decoding, forced=forced, stop=("\n", code_fence_prompt.CLOSE))
        line = f"{name} = {completion.text.strip()}\n"
        program = replace(program, usage=program.usage + completion.usage)
        if ParsedProgram(line).nodes:
            code, head = f"{head}{line}{code.removeprefix(head)}", head + line
    code = with_fractions_of_percentages(rewrite_mistakes(code), turn.hidden)
    code = with_kept_variables(follow_question(code, turn.question), turn.question, turn.variables)
    return replace(program, code=with_check(code, turn.hidden, turn.question))


async def _converted_program(
    prompt: str, reading: str, turn: code_fence_prompt.Exchange, decoding: DecodingOptions, completer: Completer
) -> DecodedProgram:
    """Decode one program, and add the merge of its tables and the conversions and sums of columns that it lacks."""
    spent = Usage()
    for attempt in range(MAX_CONVERSIONS + 1):
        completion = DecodedCompletion(prompt)
        forced = code_fence_prompt.OPEN + reading
        finish = await _decode_program(completion, decoding, completer, forced=forced)
        spent += completion.usage
        code = reading + _without_indent(completion.text)
        conversion = (
            find_missing_merge(code, reading, turn.hidden)
            or find_missing_order(code, reading, turn.hidden)
            or find_missing_conversion(code, turn.hidden)
            or find_missing_column(code, turn.hidden, turn.question)
        )
        if conversion is None or finish != "stop" or attempt == MAX_CONVERSIONS:
            break
        if conversion.is_named:
            code = reading + conversion.line + code.removeprefix(reading)
            break
        reading += conversion.line
    return DecodedProgram(with_summed_column(code, turn.question, turn.hidden), finish, spent)


async def _decode_program(
    completion: DecodedCompletion, decoding: DecodingOptions, completer: Completer, *, forced: str
) -> str:
    """Decode code up to the end of its block, and return how decoding ended: ``stop``, ``length``, or LOOP. LOOP means
    that the code has the same line MAX_EQUAL_LINES times; a small model that repeats itself otherwise continues to the
    token limit."""
    deltas = completer.stream(completion, decoding, forced=forced, stop=(code_fence_prompt.CLOSE,), keep_stop=True)
    async with aclosing(deltas):
        async for delta in deltas:
            if "\n" in delta.text and _repeats_itself(completion.text):
                return LOOP
    return completion.finish


def _repeats_itself(code: str) -> bool:
    """Return whether the last complete line of the code occurs at least MAX_EQUAL_LINES times in it."""
    *lines, _ = code.split("\n")
    return bool(lines) and len(lines[-1]) >= MIN_LINE and lines.count(lines[-1]) >= MAX_EQUAL_LINES


def _without_indent(code: str) -> str:
    """Return the code without the indentation that all lines share, and then without the leading spaces of at most
    MAX_INDENTED lines that Python refuses as an unexpected indent. A small model sometimes begins a line with a
    space."""
    code = textwrap.dedent(code)
    code = code.lstrip(" \t") if code[:1] in (" ", "\t") else code
    for _ in range(MAX_INDENTED):
        lines, number = code.split("\n"), unexpected_indent(code)
        if not 0 < number <= len(lines):
            break
        lines[number - 1] = lines[number - 1].lstrip(" \t")
        code = "\n".join(lines)
    return code
