"""A conversation as the code-fence protocol shows it to a small model; pure.

A ``python`` call is an assistant's "```python" block, its result a user message "Output:". Worked examples stand before
the conversation: of everything tried with a 0.5B model, they raised the share of right answers most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_kernel.core.messages import Message, ToolCall
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.tool_calling.code_fence_answer import error_line
from agent_kernel.engines.local.tool_calling.code_fence_files import reading_lines

TOOL = "python"
EARLIER = "Earlier variables:"
VARIABLES = ("Variables:", EARLIER)
"""How the line of hidden context begins that has facts about variables, which the question or the one before names."""
FACTS = re.compile(r"(?:(?:Earlier v|V)ariables: )?([A-Za-z_]\w*): \S")
"""Of a variable, in hidden context: its name, then what it is."""
TABLES = re.compile(r"(?:(?:Earlier v|V)ariables: )?([A-Za-z_]\w*): (?:\w*DataFrame|Series)\b")
FILE = re.compile(r"\b[\w-]+\.(?:csv|tsv|jsonl?|txt|log|md|xlsx?|parquet)\b", re.IGNORECASE)
LOADS = re.compile(r"\b(?:re)?(?:load|read|open|import)\b|\bhttps?://|/", re.IGNORECASE)
OPEN, CLOSE = "```python\n", "```"

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


def _example(asked: str, code: str, output: str, answer: str) -> tuple[ChatMessage, ...]:
    return (
        {"role": "user", "content": asked},
        {"role": "assistant", "content": f"{OPEN}{code}\n{CLOSE}"},
        {"role": "user", "content": f"Output:\n{output}\n\n{ANSWER}"},
        {"role": "assistant", "content": answer},
    )


EXAMPLES: tuple[ChatMessage, ...] = (
    *_example(
        "Variables: quillon_csv: str of 21 characters: '/depot/quillon-77.csv'\n\n"
        "Make df from quillon_csv. The column forged holds dates.",
        "df = pd.read_csv(quillon_csv, parse_dates=['forged'])\nprint(df.shape)",
        "(9173, 3)",
        "I read quillon_csv into df: it has 9173 rows and 3 columns.",
    ),
    *_example(
        "Variables: quillons: DataFrame, 9173 rows x 3 columns: forged datetime64[ns], heft float64, guild str\n\n"
        "Draw a line chart of the mean heft of quillons per calendar month.",
        "by_month = quillons.groupby(quillons['forged'].dt.month)['heft'].mean()\n"
        "by_month.plot(kind='line')\nplt.show()",
        "[1 figure(s) shown]",
        "The line chart shows the mean heft of each calendar month.",
    ),
    *_example(
        "And which one is the worst?",
        "print(by_month.idxmin(), by_month.min())",
        "11 38.64",
        "Month 11 is the worst, with a mean heft of 38.64.",
    ),
    *_example(
        "Make a bar plot with guild on the x axis and the mean heft of quillons on the y axis.",
        "by_guild = quillons.groupby('guild')['heft'].mean()\nby_guild.plot(kind='bar')\nplt.show()",
        "[1 figure(s) shown]",
        "The bar plot shows the mean heft of each guild.",
    ),
    *_example(
        "Plot the cubic function from -3 to 3.",
        "x = np.linspace(-3, 3, 200)\nplt.plot(x, x ** 3)\nplt.show()",
        "[1 figure(s) shown]",
        "The plot shows the cubic function from -3 to 3.",
    ),
    *_example("What is 17 % of 6353?", "print(6353 * 0.17)", "1080.01", "17 % of 6353 is 1080.01."),
    {"role": "user", "content": "Thanks! Who are you, and who made you?"},
    {
        "role": "assistant",
        "content": "I am agent-kernel, the assistant of this notebook. "
        "The agent-kernel project made me; it is open source.",
    },
)
"""Idioms that a small model lacks: a file with dates, a group by a part of a date, a picture, a question about what
came before, which is computed and not guessed, and code that makes its own data. The last one shows that not every
question needs code, and who answers. A small model copies from them where it knows no better, so their names and
numbers are ones that no real data has: a person who meets one in an answer knows where it comes from."""


@dataclass(slots=True)
class Exchange:
    """One turn: what was asked, the hidden context before it included, and what followed. ``hidden`` is that context
    alone."""

    asked: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)

    @property
    def names_things(self) -> bool:
        """A variable of the notebook, or a file of data."""
        lines = [line for text in self.asked for line in text.splitlines()]
        return any(line.startswith(VARIABLES) or FILE.search(line) for line in lines)

    @property
    def question(self) -> str:
        """The person's own words."""
        return "\n".join(text for text in self.asked if text not in self.hidden)

    @property
    def reading(self) -> str:
        """The lines with which code for this question begins: they read the files that it names."""
        lines = [line for text in self.hidden for line in text.splitlines()]
        variables = [found[1] for line in lines if (found := FACTS.match(line))]
        return reading_lines(self.question, self.hidden, variables)

    @property
    def has_its_tables(self) -> bool:
        """All it asks about is in tables that exist: nothing has to be read."""
        tables = any(TABLES.match(line) for text in self.hidden for line in text.splitlines())
        return tables and not FILE.search(self.question) and not LOADS.search(self.question)

    @property
    def results(self) -> list[Message]:
        return [message for message in self.replies if message.role == "tool"]

    @property
    def awaiting(self) -> Message | None:
        """The result that nobody has answered yet."""
        return self.replies[-1] if self.replies and self.replies[-1].role == "tool" else None

    def ran_python(self, result: Message) -> bool:
        """Whether this is the result of code. A result from elsewhere may have no name, only the id of its call."""
        return any(call.id == result.call_id and call.name == TOOL for said in self.replies for call in said.calls)

    @property
    def failures(self) -> int:
        return sum(result.status == "error" for result in self.results)

    def chat(self, *, retry: bool) -> list[ChatMessage]:
        """Without the calls that failed and were tried again, of which one line is kept as a note to the question: a
        small model that sees its own failed code writes the same once more. ``retry``: the last one is tried again."""
        failed = self._tried_again(retry)
        notes = [f"(Note: an earlier try ended with: {error_line(result.text)})" for result in failed]
        dropped = {result.call_id for result in failed}
        shown: list[ChatMessage] = []
        if self.asked:
            shown.append({"role": "user", "content": "\n\n".join([*self.asked, *notes])})
        for message in self.replies:
            if message.role == "tool" and message.call_id not in dropped:
                shown.append({"role": "user", "content": output_text(message)})
            elif message.role == "assistant":
                content = _said(message, dropped)
                if content:
                    shown.append({"role": "assistant", "content": content})
        return shown

    def _tried_again(self, retry: bool) -> list[Message]:
        last_call = max((at for at, message in enumerate(self.replies) if message.calls), default=-1)
        again = [message for message in self.replies[: max(0, last_call)] if message.role == "tool"]
        if retry and self.awaiting is not None:
            again.append(self.awaiting)
        return [message for message in again if message.status == "error"]


def exchanges(messages: Sequence[Message]) -> tuple[str, list[Exchange]]:
    """The instructions, and the turns in order. A user message right after another one belongs to the same turn."""
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
    """The last turn's question names a variable or a file, or it follows a turn in which code ran."""
    return bool(turns) and (turns[-1].names_things or (len(turns) > 1 and bool(turns[-2].results)))


def without_earlier(messages: Sequence[Message]) -> Sequence[Message]:
    """For the choice between code and words: without the facts of what the question before named. They would make chat
    look like a question about data, and an answer look like one that can be read off them."""
    told = messages[-2] if len(messages) > 1 else None
    if told is not None and told.hidden and told.text.startswith(EARLIER):
        return [*messages[:-2], messages[-1]]
    return messages


def chat(messages: Sequence[Message], *, tools: bool, retry: bool = False) -> list[ChatMessage]:
    """What the chat template is given. With ``tools`` the rules and the worked examples stand first. A ``retry`` goes
    without the examples, of which code that failed is often a copy, and may import what it likes."""
    instructions, turns = exchanges(messages)
    rules = (RULES.replace(IMPORTED, "") if retry else RULES) if tools else ""
    system = " ".join(part for part in (instructions, rules) if part)
    shown: list[ChatMessage] = [{"role": "system", "content": system}] if system else []
    if tools and not retry:
        shown += EXAMPLES
    for turn in turns:
        shown += turn.chat(retry=retry and turn is turns[-1])
    return shown


def output_text(result: Message) -> str:
    """A result as the model reads it."""
    text = result.text.strip() or "(no output)"
    label = "Output" if result.status in ("success", None) else f"Output ({result.status})"
    return f"{label}:\n{text}\n\n{ANSWER}"


def code_block(code: str) -> str:
    return f"{OPEN}{code}{CLOSE}" if code.endswith("\n") else f"{OPEN}{code}\n{CLOSE}"


def _said(message: Message, dropped: set[str | None]) -> str:
    blocks = [_called(call) for call in message.calls if call.id not in dropped]
    return "\n".join(part for part in (message.text, *blocks) if part)


def _called(call: ToolCall) -> str:
    """Code, or for another tool than python what it was called with."""
    if call.name == TOOL:
        return code_block(str(call.arguments.get("code", call.arguments.get("_raw", ""))))
    return f"{call.name}: {json.dumps(dict(call.arguments), ensure_ascii=False)}"
