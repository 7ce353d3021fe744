"""Completes a program so that it prints the values of a question in the form that the question demands:
``@mean[12.5] @count[4]``. InfiAgent-DABench (arXiv 2401.05507) asks for its answers in this form. The functions have no
side effects."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from agent_kernel.core.programs.syntax_tree import names_set, parse_or_empty

IN_F_STRING = re.compile(r"@(?P<slot>\w+)\[\{(?P<name>[A-Za-z_]\w*)(?P<format>:[^{}]*)?\}\]")
"""Matches a value in the form that a question demands (``answer_form.SLOT``) in an f-string."""
NUMBER_IN_TEXT = re.compile(r"@(\w+)\[-?\d[\d.,]*\]|@(\w+)\[(?P<end>['\"], ?)-?\d[\d.]*(?=, ?['\"]\])")
"""Matches a number that a program prints as a value of the question without computing it."""


def with_printed_values(code: str, slots: Mapping[str, str]) -> str:
    """Return the code so that it prints the values that the question demands in the form ``@name[placeholder]``
    (``slots``: placeholders by name). A line ``@mean[m] @count[n]``, which Python cannot parse, becomes a call of
    print. A placeholder that is printed as text, ``print("@mean[value]")``, becomes a variable. A placeholder in an
    f-string, ``@mean[{value}]``, becomes the variable ``mean`` if the program sets that and not ``value``. A program
    that does not print all values, and has variables with most of their names, gets a line that prints them."""
    if not slots:
        return code
    code = "\n".join(_printed_placeholders(_printed_slots(line, slots), slots) for line in code.split("\n"))
    code = _without_broken_print(code)
    names = names_set(code)

    def placeholder(match: re.Match[str]) -> str:
        wrong = match["slot"] in names and match["name"] not in names
        return f"@{match['slot']}[{{{match['slot']}{match['format'] or ''}}}]" if wrong else match[0]

    code = IN_F_STRING.sub(placeholder, code) if names else code
    is_printed = all(f"@{slot}[" in code for slot in slots)
    # A program without these variables prints its values in another way. The model then writes the answer in the
    # demanded form.
    has_variables = 2 * len(names.intersection(slots)) >= len(slots)
    return code if is_printed or not has_variables else f"{_without_other_form(code, slots)}\n{_print_of(slots)}\n"


def unset_values(code: str, slots: Mapping[str, str]) -> tuple[str, list[str]]:
    """Split off the last lines of the code, which print the values of ``slots``. Return (the code before these lines,
    the variables that the lines print and the code before them does not set)."""
    body = parse_or_empty(code).body
    printing = len(body)
    while printing and _prints_slot(body[printing - 1], slots):
        printing -= 1
    head = "".join(code.splitlines(keepends=True)[: body[printing].lineno - 1]) if printing < len(body) else code
    values = [value for node in body[printing:] for value in _printed_expressions(node)]
    printed = dict.fromkeys(value.id for value in values if isinstance(value, ast.Name))
    names = names_set(head)
    return head, [name for name in printed if name not in names]


def _prints_slot(node: ast.stmt, slots: Mapping[str, str]) -> bool:
    """Return whether the statement prints a value of ``slots`` in the demanded form."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "print":
        return False
    texts = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return any(f"@{slot}[" in text for slot in slots for text in texts)


def _printed_expressions(node: ast.stmt) -> list[ast.expr]:
    """Return the arguments of the calls of print in a statement, and the values in its f-strings."""
    parts = list(ast.walk(node))
    calls = [part for part in parts if isinstance(part, ast.Call) and ast.unparse(part.func) == "print"]
    inside = [part.value for part in parts if isinstance(part, ast.FormattedValue)]
    return [*inside, *(value for call in calls for value in call.args)]


def _print_of(slots: Mapping[str, str]) -> str:
    """Return a line that prints the variables with the names of ``slots`` in the demanded form."""
    values = " ".join(f"@{name}[{{{name}}}]" for name in slots)
    return f'print(f"{values}")'


def _printed_slots(line: str, slots: Mapping[str, str]) -> str:
    """Convert a line ``@name[expression] ...``, which is not Python, to a call of print. A line that repeats the form
    of the question, ``@mean[value], @count[n] where ...``, becomes a print of the variables named by ``slots``. A line
    that sets a value, ``@mean = m``, becomes an assignment. Return any other line unchanged."""
    assigned = re.match(r"@(\w+)(?= ?= ?)", line)
    if assigned and assigned[1] in slots:
        return line.removeprefix("@")
    parts: list[str] = []
    rest = line.strip()
    while match := re.match(r"[ ,;]*@(\w+)\[", rest):
        ends = [at for at, char in enumerate(rest) if char == "]" and at >= match.end()]
        inside = (rest[match.end() : end] for end in ends)
        expression = next((text for text in inside if parse_or_empty(text).body), "")
        if not expression:
            break
        parts.append(f"'{' ' if parts else ''}@{match[1]}[', {expression}, ']'")
        rest = rest[match.end() + len(expression) + 1 :]
    indent = line[: len(line) - len(line.lstrip())]
    if not parts or rest.strip(" ,;."):
        is_form = line.startswith("@") and all(f"@{name}[{placeholder}]" in line for name, placeholder in slots.items())
        return _print_of(slots) if is_form else line
    return f"{indent}print({', '.join(parts)}, sep='')"


def _without_broken_print(code: str) -> str:
    """Return the code without its last line if this is a call of print and the only line that cannot be parsed."""
    head, _, last = code.rstrip().rpartition("\n")
    is_broken = last.startswith("print(") and not parse_or_empty(code).body and bool(parse_or_empty(head).body)
    return f"{head}\n" if is_broken else code


def _without_other_form(code: str, slots: Mapping[str, str]) -> str:
    """Return the code without lines at its end that print values in another form after ``@``, such as
    ``print(f"@{mean}")``."""
    lines = code.rstrip().split("\n")
    while lines and lines[-1].startswith("print(") and "@" in lines[-1]:
        body = parse_or_empty(lines[-1]).body
        if not body or _prints_slot(body[0], slots):
            break
        lines.pop()
    return "\n".join(lines)


def _printed_placeholders(line: str, slots: Mapping[str, str]) -> str:
    """Rewrite a line that prints a placeholder of the question as text, ``print("@mean[value]")``, or a number that the
    program has not computed, ``print("@mean[12.5]")``: the new line prints the variable of that name. Return any other
    line unchanged."""
    opening = re.match(r"print\(f?(?=['\"])", line)
    if opening is None:
        return line

    def placeholder(match: re.Match[str]) -> str:
        name = match[2]
        return f"@{match[1]}[{{{name}}}]" if name == slots.get(match[1]) and name.isidentifier() else match[0]

    def number(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in slots:
            return match[0]
        return f"@{name}[{match['end']}{name}" if match["end"] else f"@{name}[{{{name}}}]"

    text = NUMBER_IN_TEXT.sub(number, re.sub(r"@(\w+)\[([^\[\]{}]+)\]", placeholder, line))
    f = "f" if opening[0].endswith("f") or text.count("{") > line.count("{") else ""
    return f"print({f}{text[opening.end() :]}" if text != line else line
