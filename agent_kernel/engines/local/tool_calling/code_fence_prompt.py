"""Converts a conversation to the messages that a small model sees in the code-fence protocol. The functions have no
side effects.

A ``python`` call becomes a "```python" block of an assistant message, and its result a user message that begins with
"Output:". Worked examples precede the conversation. Of all measures that were tried with a 0.5B model, these examples
increased the share of right answers most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_kernel.core.messages import Message, ToolCall, corrected_call, correction_id
from agent_kernel.core.programs.answer_form import slots_of, unusable_value
from agent_kernel.core.programs.method_examples import method_examples
from agent_kernel.core.programs.program_repair import repair_program
from agent_kernel.core.programs.syntax_tree import parse
from agent_kernel.core.programs.table_facts import long_table, select_named_values
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import (
    asks_for_form,
    error_facts,
    error_line,
    without_warnings,
)
from agent_kernel.engines.local.tool_calling.code_fence_file_loading import facts_of_read_file, reading_lines
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import surplus_rows, unchanged_function

TOOL = "python"
EARLIER = "Earlier variables:"
NEWEST = "Newest tables:"
VARIABLES = ("Variables:", EARLIER)
"""Beginnings of lines of hidden context that describe variables. The first is for variables that this question names,
the second for those that the previous question named. NEWEST, for tables that no question named, is not among them,
because a question does not have to be about such tables."""
FACTS = re.compile(r"(?:(?:Variables|Earlier variables|Newest tables): )?([A-Za-z_]\w*): \S")
"""Matches a line of hidden context that describes a variable: the variable's name, followed by its description."""
TABLES = re.compile(r"(?:(?:Variables|Earlier variables|Newest tables): )?([A-Za-z_]\w*): (?:\w*DataFrame|Series)\b")
FAILED_CELL = "The cell that failed:"
"""The beginning of the hidden context of ``%agent fix``."""
FILE = re.compile(r"\b[\w-]+\.(?:csv|tsv|jsonl?|txt|log|md|xlsx?|parquet)\b", re.IGNORECASE)
LOADS = re.compile(r"\b(?:re)?(?:load|read|open|import)\b|\bhttps?://|/", re.IGNORECASE)
ABOUT_THE_DATA = re.compile(
    r"\b(?:(?:the|this|these|my|our) (?:data(?:set|frame)?|table)|columns|rows|missing values|duplicates|data types"
    r"|(?:die|den|der|diese[nr]?|meine[nr]?) (?:Daten|Tabelle)|Spalten|Zeilen|fehlende[nr]? Werte|Duplikate"
    r"|(?:les|mes|ces) données|(?:le|ce|mon) tableau|colonnes|lignes|valeurs manquantes|doublons"
    r"|(?:los|mis|estos) datos|(?:la|mi|esta) tabla|columnas|filas|valores faltantes|duplicados)\b",
    re.IGNORECASE,
)
"""Finds words with which a question means the data of the notebook without naming it."""
OPEN, CLOSE = "```python\n", "```"
DIAGRAM = re.compile(
    r"\s*(?:%%.*\n\s*)*(?:(?:graph|flowchart)[ \t]+(?:TB|TD|BT|RL|LR)\b|pie(?:[ \t]+(?:title\b|showData\b)|\s*\n)"
    r"|(?:sequenceDiagram|classDiagram|stateDiagram(?:-v2)?|erDiagram|gantt|journey|gitGraph|mindmap|timeline)\s*\n)"
)
"""Matches the beginning of a Mermaid diagram."""

IMPORTED = "np, pd, plt, math, json, re, os, csv and datetime are imported. "
RULES = (
    "To do something, write one ```python code block: it runs in the user's notebook and you see its output. "
    "Use exactly the names the user gives. "
    "Variables that you are told of exist: never load or define them again. Make what does not exist. "
    f"{IMPORTED}"
    "Let Python compute every value and print it; never write results yourself. "
    "If no code is needed, answer in plain text."
)
ANSWER = "Answer my question in one plain sentence from this output."
ANSWERS = (
    (re.compile(r"\b(?:the|of|is|are|what|which|how|in|and|for|with|my)\b", re.IGNORECASE), ANSWER),
    (
        re.compile(
            r"\b(?:d(?:er|ie|as|en|em)|und|ist|sind|wie|viele?|welche[nrs]?|eine?[nr]?|von|im|für|mit|aus|zeige|berechne)\b",
            re.IGNORECASE,
        ),
        "Beantworte meine Frage anhand dieser Ausgabe in einem einfachen Satz auf Deutsch.",
    ),
    (
        re.compile(r"\b(?:l[ae]s?|d[eu]s?|est|sont|quel(?:le)?s?|combien|une?|dans|pour|avec|et)\b", re.IGNORECASE),
        "Réponds à ma question en une phrase simple en français, d'après cette sortie.",
    ),
    (
        re.compile(r"\b(?:el|l[ao]s?|de(?:l)?|es|son|cuál(?:es)?|cuánt[ao]s?|una?|en|por|con|qué|y)\b", re.IGNORECASE),
        "Responde a mi pregunta con una frase sencilla en español a partir de esta salida.",
    ),
)
"""Pairs of a pattern that matches frequent words of a language, and the instruction ANSWER in this language. After an
English instruction a small model would answer a German question in English."""
ANSWER_IN_FORM = "Answer with the values from this output, in exactly the form that I asked for."
MAX_QUESTION = 4_000
"""Maximum number of characters of a question whose language is recognised."""
MAX_CORRECTIONS = 4
"""Maximum number of programs of a turn that are corrected without the model."""


@dataclass(slots=True)
class Exchange:
    """One turn of the conversation. ``asked`` contains all user messages of the turn, including the hidden context
    before the question; ``hidden`` contains only the hidden ones. ``replies`` contains the messages that followed."""

    asked: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)

    @property
    def names_things(self) -> bool:
        """Whether the turn is about data: the hidden context describes variables of the notebook, or the question names
        a data file."""
        lines = [line for text in self.asked for line in text.splitlines()]
        return any(line.startswith(VARIABLES) or FILE.search(line) for line in lines)

    @property
    def question(self) -> str:
        """The user's own text, without the hidden context."""
        return "\n".join(text for text in self.asked if text not in self.hidden)

    @property
    def repairs_a_cell(self) -> bool:
        """Whether the hidden context contains a cell that failed. Such a cell may lack an import."""
        return any(line.startswith(FAILED_CELL) for text in self.hidden for line in text.splitlines())

    @property
    def variables(self) -> list[str]:
        """The names of the variables of the notebook that the hidden context describes."""
        lines = (line for text in self.hidden for line in text.splitlines())
        return [match[1] for line in lines if (match := FACTS.match(line))]

    @property
    def reading(self) -> str:
        """The first lines of the code for this question: they read the files that it names. If it names one file, they
        also make a long table of its periods, or select the rows that the words of the question mean. An empty string
        if it names no file."""
        reading = reading_lines(self.question, self.hidden, self.variables)
        if reading.count("\n") != 1:
            return reading
        table, facts = reading.partition(" = ")[0], facts_of_read_file(reading, self.hidden)
        long = long_table(self.question, table, self.hidden)
        return reading + (long or select_named_values(self.question, table, facts))

    @property
    def has_its_tables(self) -> bool:
        """Whether the question is about tables that already exist and names no file, so that no file needs to be
        read."""
        tables = any(TABLES.match(line) for text in self.hidden for line in text.splitlines())
        return tables and not FILE.search(self.question) and not LOADS.search(self.question)

    @property
    def results(self) -> list[Message]:
        return [message for message in self.replies if message.role == "tool"]

    @property
    def awaiting(self) -> Message | None:
        """The result of the last call if the model has not replied to it yet, otherwise None."""
        return self.replies[-1] if self.replies and self.replies[-1].role == "tool" else None

    def ran_python(self, result: Message) -> bool:
        """Return whether ``result`` is the result of a python call. The call is found by its id, because a result may
        have no name."""
        return any(
            call.id == result.call_id and call.name == TOOL for message in self.replies for call in message.calls
        )

    def objection(self, result: Message) -> str:
        """Return why a python call must be tried again, as part of a note for the model; an empty string if its result
        is acceptable. A call is tried again if it ended with an error, printed many rows for a question that asks for
        one value, printed an unusable value where the question demands a form, or left the function that the question
        asks to change unchanged."""
        if result.status == "error":
            facts = error_facts(result.text)
            error = error_line(result.text)
            return f"ended with: {error.rstrip('.')}. {facts}" if facts else f"ended with: {error}"
        if result.status != "success" or not self.ran_python(result):
            return ""
        if function := self.unchanged_function(result):
            return f"defined {function} again without any change, so {function} does the same as before"
        if unusable := unusable_value(result.text, self.question):
            return unusable
        rows = surplus_rows(result.text, self.question)
        return f"printed {rows} rows, but the question asks for one value" if rows else ""

    def unchanged_function(self, result: Message) -> str:
        """Return the name of the function that the question asks to change and that the call with this result defined
        without a change; an empty string if there is none."""
        return unchanged_function(self._code_of(result), self.hidden, self.question)

    @property
    def failed_programs(self) -> list[str]:
        """The code of the python calls that must be tried again because ``objection`` rejects their result."""
        failed = [result for result in self.results if self.objection(result)]
        return [self._code_of(result) for result in failed if self.ran_python(result)]

    @property
    def slots(self) -> dict[str, str]:
        """The values that the question demands in the form ``@name[placeholder]``, as a mapping from each name to its
        placeholder."""
        return slots_of(self.question)

    @property
    def correction(self) -> ToolCall | None:
        """A call of the last program with the known correction of its error; None if the program did not fail, if no
        correction is known, or if the corrected program has already run."""
        result = self.awaiting
        if result is None or result.status != "error" or not self.ran_python(result):
            return None
        programs = [self._code_of(result) for result in self.results]
        corrected = repair_program(programs[-1], result.text)
        if not corrected or corrected in programs or len(self._corrected) >= MAX_CORRECTIONS:
            return None
        return ToolCall(correction_id(result.call_id or ""), TOOL, {"code": corrected})

    @property
    def _corrected(self) -> list[Message]:
        """The results of failed calls whose program was corrected and run again."""
        corrected = {corrected_call(result.call_id or "") for result in self.results}
        return [result for result in self.results if result.call_id in corrected]

    def _code_of(self, result: Message) -> str:
        calls = [call for message in self.replies for call in message.calls if call.id == result.call_id]
        return str(calls[0].arguments.get("code", "")) if calls else ""

    @property
    def failures(self) -> int:
        """The number of calls that ended with an error and whose program was not corrected and run again."""
        return sum(result.status == "error" for result in self.results) - len(self._corrected)

    def chat(self, *, retry: bool) -> list[ChatMessage]:
        """Return the messages of this turn for the chat template. Calls that were tried again are left out, because a
        small model that sees its failed code repeats it; instead, a note with the reason follows the question.
        ``retry`` means that the last call is to be tried again."""
        failed = self._tried_again(retry)
        notes = [f"(Note: an earlier try {self.objection(result)})" for result in failed]
        dropped = {result.call_id for result in failed}
        messages: list[ChatMessage] = []
        if self.asked:
            examples = method_examples(self.question) if self.names_things else ""
            parts = [*self.asked, *notes, *([examples] if examples else [])]
            messages.append({"role": "user", "content": "\n\n".join(parts)})
        for message in self.replies:
            if message.role == "tool" and message.call_id not in dropped:
                messages.append({"role": "user", "content": output_text(message, self.question)})
            elif message.role == "assistant":
                content = _assistant_text(message, dropped)
                if content:
                    messages.append({"role": "assistant", "content": content})
        return messages

    def _tried_again(self, retry: bool) -> list[Message]:
        last_call = max((at for at, message in enumerate(self.replies) if message.calls), default=-1)
        again = [message for message in self.replies[: max(0, last_call)] if message.role == "tool"]
        if retry and self.awaiting is not None:
            again.append(self.awaiting)
        return [message for message in again if self.objection(message)]


def exchanges(messages: Sequence[Message]) -> tuple[str, list[Exchange]]:
    """Return the system messages as one text, and the turns in order. Consecutive user messages belong to one turn."""
    instructions = " ".join(message.text for message in messages if message.role == "system")
    turns: list[Exchange] = []
    for message in messages:
        if message.role == "user":
            if not turns or turns[-1].replies:
                turns.append(Exchange())
            turns[-1].asked.append(message.text)
            if message.hidden:
                turns[-1].hidden.append(message.text)
        elif message.role != "system":
            if not turns:
                turns.append(Exchange())
            turns[-1].replies.append(message)
    return instructions, turns


def leans_to_code(turns: Sequence[Exchange]) -> bool:
    """Return whether the last question is likely to need code: it names a variable or a file, or code ran in the turn
    before it."""
    return bool(turns) and (turns[-1].names_things or (len(turns) > 1 and bool(turns[-2].results)))


def without_unnamed_data(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages for the choice between code and text, without the descriptions of variables that this
    question does not name. With these descriptions, a model may write code for a question that needs no data, or take
    the descriptions for the answer. For a question about "the data" the descriptions stay, because its answer needs
    them."""
    facts = messages[-2] if len(messages) > 1 else None
    if facts is not None and facts.hidden and facts.text.startswith((EARLIER, NEWEST)):
        if ABOUT_THE_DATA.search(messages[-1].text):
            return messages
        return [*messages[:-2], messages[-1]]
    return messages


def chat(
    messages: Sequence[Message],
    *,
    tools: bool,
    retry: bool = False,
    examples: Sequence[ChatMessage] = (),
    in_retry: bool = False,
) -> list[ChatMessage]:
    """Return the messages for the chat template. With ``tools``, the rules and the worked ``examples`` come first.
    ``retry`` means that the last call is to be tried again. If this call ended with an error, the rules allow every
    import, and the examples are left out unless ``in_retry`` is True: the failed code of a very small model is often a
    copy of an example, while a larger model without examples writes programs that invent the data."""
    instructions, turns = exchanges(messages)
    failed = retry and turns[-1].failures > 0
    rules = (RULES.replace(IMPORTED, "") if failed else RULES) if tools else ""
    system = " ".join(part for part in (instructions, rules) if part)
    shown: list[ChatMessage] = [{"role": "system", "content": system}] if system else []
    if tools and (in_retry or not failed):
        shown += examples
    for turn in turns:
        shown += turn.chat(retry=retry and turn is turns[-1])
    return shown


def output_text(result: Message, question: str) -> str:
    """Return the text of a tool result as the model sees it: with a label and an instruction. ``question`` is the
    question of the turn."""
    text = result.text.strip() or "(no output)"
    text = without_warnings(text) if result.status == "success" else text
    label = "Output" if result.status in ("success", None) else f"Output ({result.status})"
    return f"{label}:\n{text}\n\n{ANSWER_IN_FORM if asks_for_form(question) else _answer_instruction(question)}"


def _answer_instruction(question: str) -> str:
    """Return ANSWER in the language of which the question has the most frequent words; in English for equally many."""
    return max(ANSWERS, key=lambda one: len(one[0].findall(question[:MAX_QUESTION])))[1]


def code_block(code: str) -> str:
    return f"{OPEN}{code}{CLOSE}" if code.endswith("\n") else f"{OPEN}{code}\n{CLOSE}"


def is_diagram(code: str) -> bool:
    """Return whether ``code`` is a Mermaid diagram. Code that is valid Python is not, since ``timeline`` may be a
    variable."""
    return bool(DIAGRAM.match(code)) and parse(code) is None


def _assistant_text(message: Message, dropped: set[str | None]) -> str:
    blocks = [_call_text(call) for call in message.calls if call.id not in dropped]
    return "\n".join(part for part in (message.text, *blocks) if part)


def _call_text(call: ToolCall) -> str:
    """Return the text of a call: a code block for python, the name and the arguments for any other tool."""
    if call.name == TOOL:
        return code_block(str(call.arguments.get("code", call.arguments.get("_raw", ""))))
    return f"{call.name}: {json.dumps(dict(call.arguments), ensure_ascii=False)}"
