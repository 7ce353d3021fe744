"""Parses the line of ``%%agent``: options first, then the beginning of the prompt, which is kept as written."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.turn.execution_target import CHOICES
from agent_kernel.notebook.turn.result_type import EXAMPLES, check_name

WORD = re.compile(r"\s*(\"[^\"]*\"|'[^']*'|\S+)")
ARROW = re.compile(r"\s*->\s*(?P<name>[^\s:]*)(?P<colon>\s*:\s*)?")
TERM = re.compile(r"[^\W\d][\w.]*\s*(?=\[)|[^\W\d][\w.]*")
UNION = re.compile(r"\s*\|\s*")
TO_VARIABLE = "->"


class Option(NamedTuple):
    """One option: its flags, the field it sets, and how its value is read. An option with a ``constant`` takes no
    value. With ``many``, it may be repeated and collects its values."""

    flags: tuple[str, ...]
    sets: str
    help: str
    value: str = ""
    read: Callable[[str], Any] = str
    constant: Any = None
    choices: tuple[str, ...] = ()
    many: bool = False


class ResultVariable(NamedTuple):
    """The variable that gets the result of a turn. ``type`` is the text of its type; "" for the answer as text."""

    name: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The parsed options of an agent cell. ``words`` is the part of the prompt that stands on the line with the
    options. ``allows`` are kinds of calls that the user approved for this turn. ``page`` selects the notebook cells
    that the model sees in place of the conversation."""

    words: str = ""
    help: bool = False
    where: str = ""
    session: str = ""
    new: bool = False
    fresh: bool = False
    model: str = ""
    permission: str = ""
    effort: str = ""
    allows: tuple[str, ...] = ()
    page: str = ""
    branch: str = ""
    background: bool = False
    form: str = "md"
    variables: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    rounds: int | None = None
    result: ResultVariable | None = None
    sampling: dict[str, Any] = field(default_factory=dict)


WIDTH = 100
LEFT = 28
FORMS = ("md", "code", "json", "text")
EFFORTS = ("quick", "auto", "thorough")
EDITS = ("notebook.edit",)
ACTS = ("python.live", "notebook.edit", "notebook.run")


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


OPTIONS = (
    Option(
        ("--in",),
        "where",
        "run Python in your kernel, in a draft (a copy that changes nothing), or in the sandbox",
        "live|draft|sandbox",
        choices=CHOICES,
    ),
    Option(("-s", "--session"), "session", "use another session of this notebook", "ID"),
    Option(("--new",), "new", "start a new session and run the turn in it", constant=True),
    Option(("--branch",), "branch", "continue a branch, or start a new one after turn N of this one", "NAME|N"),
    Option(
        ("-c", "--context"),
        "page",
        "what the model sees in place of the conversation: the cells above in notebook order, nothing, or the cells "
        "with these numbers",
        "above|none|3,5-8",
    ),
    Option(("--above",), "page", "same as -c above", constant="above"),
    Option(("--fresh",), "fresh", "ask again where Run All would show the stored answer", constant=True),
    Option(("-m", "--model"), "model", "let this model answer", "NAME"),
    Option(
        ("--effort",),
        "effort",
        "how many programs the model writes for a question: one (quick), one and several if it fails or values are "
        "demanded as @name[value] (auto), or always several, whose results are compared (thorough)",
        "quick|auto|thorough",
        choices=EFFORTS,
    ),
    Option(
        ("-v", "--vars"),
        "variables",
        "describe these variables to the model; the sandbox gets copies",
        "df,cfg",
        _names,
    ),
    Option(("--image",), "images", "show the model a picture or a video: a file or a variable", "PATH", many=True),
    Option(("--skill",), "skills", "give the model a skill, by name or id; may be repeated", "NAME", many=True),
    Option(
        ("-f", "--format"),
        "form",
        "format of the answer: Markdown, code for a cell below (which you run yourself), JSON, or plain text",
        "md|code|json|text",
        choices=FORMS,
    ),
    Option(
        ("--background",),
        "background",
        "return at once; the answer grows in this cell's output, and Python runs in the sandbox",
        constant=True,
    ),
    Option(("--ask",), "permission", "ask before every call in this turn", constant="ask"),
    Option(("--edit",), "allows", "edit cells without asking in this turn", constant=EDITS),
    Option(("--auto",), "allows", "run code in your kernel, and edit and run cells, without asking", constant=ACTS),
    Option(("--deny",), "permission", "deny every call in this turn", constant="deny"),
    Option(("--rounds", "--steps"), "rounds", "allow at most N rounds of tool calls; 0: none", "N", int),
    Option(("--max-tokens",), "max_tokens", "stop the answer after N tokens", "N", int),
    Option(("--temperature",), "temperature", "sampling temperature; 0: always the likeliest token", "T", float),
    Option(("--top-p",), "top_p", "sample from the likeliest tokens only", "P", float),
    Option(("--seed",), "seed", "seed of the sampling, for repeatable answers", "N", int),
    Option(("-h", "--help"), "help", "show this list of options", constant=True),
)
RESULT_ROW = (
    "-> NAME[: TYPE]",
    f"set this variable to the answer; TYPE: {EXAMPLES}",
)
SAMPLING = {"max_tokens", "temperature", "top_p", "seed"}
BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}


def parse_options(line: str) -> CellOptions:
    """Parse the option line. Raises AgentError for an unknown option or an invalid value."""
    values: dict[str, Any] = {}
    position = 0
    while (match := WORD.match(line, position)) and match[1].startswith("-") and len(match[1].strip("-")) > 0:
        if match[1].startswith(TO_VARIABLE):
            values["result"], position = _result_variable(line, position)
            continue
        flag, equals, value = match[1].partition("=")
        option = BY_FLAG.get(flag) or _unknown(flag)
        position = match.end()
        if option.constant is not None:
            values[option.sets] = option.constant
            continue
        if not equals:
            following = WORD.match(line, position)
            if following is None:
                raise AgentError(f"{flag} needs a value: {flag} {option.value}")
            value, position = following[1], following.end()
        read = _read(option, flag, value.strip("\"'"))
        values[option.sets] = (*values.get(option.sets, ()), read) if option.many else read
    sampling = {name: values.pop(name) for name in SAMPLING & set(values)}
    return CellOptions(words=line[position:].strip(), sampling=sampling, **values)


def _result_variable(line: str, position: int) -> tuple[ResultVariable, int]:
    """Parse ``-> name`` or ``-> name: type`` at ``position``. Returns the variable and the position after it. Does not
    check whether the type exists."""
    match = ARROW.match(line, position)
    assert match is not None
    check_name(match["name"])
    if not match["colon"]:
        return ResultVariable(match["name"]), match.end()
    end = _end_of_type(line, match.end())
    if end == match.end() or (end < len(line) and not line[end].isspace()):
        shown = (line[match.end() :].split() or [""])[0]
        raise AgentError(f"{shown!r} is not a type. Use {EXAMPLES}.")
    return ResultVariable(match["name"], line[match.end() : end]), end


def _end_of_type(line: str, position: int) -> int:
    """Return the position after the type (names, brackets and ``|``) that begins at ``position``; if there is none,
    return ``position``."""
    while term := TERM.match(line, position):
        position = term.end()
        if line[position : position + 1] == "[":
            position = _end_of_brackets(line, position)
        union = UNION.match(line, position)
        if union is None or not TERM.match(line, union.end()):
            return position
        position = union.end()
    return position


def _end_of_brackets(line: str, position: int) -> int:
    """Return the position after the bracket that closes the bracket at ``position``. Raises AgentError if no bracket
    closes it."""
    depth, quote = 0, ""
    for index in range(position, len(line)):
        letter = line[index]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter == "[") - (letter == "]")
            if depth == 0:
                return index + 1
    raise AgentError(f"{line[position:].strip()[:40]!r} has no closing bracket.")


def _read(option: Option, flag: str, value: str) -> Any:
    try:
        read = option.read(value)
    except ValueError:
        raise AgentError(f"{flag} must be a number, not {value!r}.") from None
    if option.choices and read not in option.choices:
        raise AgentError(f"{flag} must be {' or '.join(option.choices)}, not {value!r}.")
    return read


def _unknown(flag: str) -> Option:
    # Names are compared without the dashes, because two equal characters make any two short options look similar.
    long = {known.removeprefix("--"): known for known in BY_FLAG if known.startswith("--")}
    near = difflib.get_close_matches(flag.removeprefix("--"), long, 1)
    suggestion = f" Did you mean {long[near[0]]}?" if near else ""
    raise AgentError(
        f"%%agent has no option {flag}.{suggestion} A prompt that starts with a dash goes on the next line."
    )


def usage() -> str:
    lines = [
        "%%agent [options] [prompt]",
        "The prompt may have any number of lines; {name} describes a variable to the model, the sandbox gets a copy.",
        "",
    ]
    rows = [(", ".join(option.flags) + (f" {option.value}" if option.value else ""), option.help) for option in OPTIONS]
    for left, words in [RESULT_ROW, *rows]:
        text = textwrap.wrap(words, WIDTH - LEFT)
        beside = len(left) <= LEFT - 4
        lines.append(f"  {left:<{LEFT - 2}}{text[0]}" if beside else f"  {left}")
        lines += [" " * LEFT + line for line in (text[1:] if beside else text)]
    return "\n".join(lines)
