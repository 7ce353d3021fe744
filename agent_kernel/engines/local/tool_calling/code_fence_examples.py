"""The worked examples that precede the conversation in the code-fence protocol.

A small model copies from the examples, so their names and numbers occur in no real data: a user who sees one of them in
an answer can tell where it comes from.
"""

from __future__ import annotations

from agent_kernel.core.messages import figures_note
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.tool_calling.code_fence_prompt import ANSWER, ANSWER_IN_FORM, CLOSE, OPEN


def _example(question: str, code: str, output: str, answer: str, instruction: str = ANSWER) -> tuple[ChatMessage, ...]:
    return (
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"{OPEN}{code}\n{CLOSE}"},
        {"role": "user", "content": f"Output:\n{output}\n\n{instruction}"},
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
        figures_note(1),
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
        figures_note(1),
        "The bar plot shows the mean heft of each guild.",
    ),
    *_example(
        "Plot the cubic function from -3 to 3.",
        "x = np.linspace(-3, 3, 200)\nplt.plot(x, x ** 3)\nplt.show()",
        figures_note(1),
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
"""Worked examples of what a small model does not know by itself: a file with dates, grouping by a part of a date, a
plot, a question about an earlier result (which must be computed, not guessed), and code that creates its own data. The
last example shows that not every question needs code, and states who the assistant is."""

KNOWLEDGE_EXAMPLES: tuple[ChatMessage, ...] = (
    *EXAMPLES[:-2],
    {"role": "user", "content": "Which metal is liquid at room temperature?"},
    {"role": "assistant", "content": "Mercury is liquid at room temperature."},
    *EXAMPLES[-2:],
)
"""The worked examples for a model of ``tool_protocols.FIRM`` parameters or more. Without a question of general
knowledge among them, such a model answers one ("What is the capital of France?") with a program that prints the answer.
A smaller model copies too much from this example: it then computes in text."""

QUILLONS = (
    "Variables: quillons: DataFrame, 9173 rows x 5 columns: forged datetime64[ns], heft float64, quillspan float64, "
    "guild str, bladesmith str\n\n"
)
FORM = "\n\nEnd your answer with the following, in exactly this form:\n"


def _form_example(question: str, code: str, values: str) -> tuple[ChatMessage, ...]:
    return _example(QUILLONS + question, code, values, values, ANSWER_IN_FORM)


FORM_EXAMPLES: tuple[ChatMessage, ...] = (
    *_form_example(
        "What is the mean heft of the heaviest quillon of each bladesmith in the guild 'Ostrel', and how many "
        "bladesmiths are there?\n\n"
        "Leave out rows without heft. Take the greatest heft of each bladesmith, then the mean over the bladesmiths. "
        f"Round the mean to two decimals.{FORM}"
        "@mean_heft[mean] @n_bladesmiths[count] where mean is a number rounded to two decimals and count is a whole "
        "number",
        "# the guild 'Ostrel'\n"
        "rows = quillons[quillons['guild'] == 'Ostrel']\n"
        "# Leave out rows without heft.\n"
        "rows = rows.dropna(subset=['heft'])\n"
        "# Take the greatest heft of each bladesmith, then the mean over the bladesmiths.\n"
        "greatest = rows.groupby('bladesmith')['heft'].max()\n"
        "mean_heft = greatest.mean()\n"
        "# how many bladesmiths are there\n"
        "n_bladesmiths = len(greatest)\n"
        'print(f"@mean_heft[{mean_heft:.2f}] @n_bladesmiths[{n_bladesmiths}]")',
        "@mean_heft[61.07] @n_bladesmiths[48]",
    ),
    *_form_example(
        "Is the ratio of heft to quillspan of light quillons related to the year in which they were forged?\n\n"
        "Define heft_ratio = heft / quillspan. Light quillons have a heft below 40. Remove rows whose heft_ratio is "
        "more than 2 standard deviations from the mean heft_ratio of the light quillons. Then compute the Pearson "
        "correlation of heft_ratio with the year. Call it 'weak' if its absolute value is below 0.3, otherwise "
        f"'strong'. Round to three decimals.{FORM}"
        "@n_left[count] @r[correlation] @kind[word] where count is a whole number, correlation is a number rounded to "
        "three decimals and word is weak or strong",
        "# Define heft_ratio = heft / quillspan.\n"
        "quillons['heft_ratio'] = quillons['heft'] / quillons['quillspan']\n"
        "# Light quillons have a heft below 40.\n"
        "light = quillons[quillons['heft'] < 40].dropna(subset=['heft_ratio', 'forged'])\n"
        "# Remove rows whose heft_ratio is more than 2 standard deviations from the mean of the light quillons.\n"
        "distance = (light['heft_ratio'] - light['heft_ratio'].mean()).abs()\n"
        "kept = light[distance <= 2 * light['heft_ratio'].std()]\n"
        "n_left = len(kept)\n"
        "# Then compute the Pearson correlation of heft_ratio with the year.\n"
        "r = kept['heft_ratio'].corr(kept['forged'].dt.year)\n"
        "# Call it 'weak' if its absolute value is below 0.3, otherwise 'strong'.\n"
        "kind = 'weak' if abs(r) < 0.3 else 'strong'\n"
        'print(f"@n_left[{n_left}] @r[{r:.3f}] @kind[{kind}]")',
        "@n_left[1218] @r[-0.114] @kind[weak]",
    ),
    *KNOWLEDGE_EXAMPLES[-8:],
)
"""The worked examples for a model of ``tool_protocols.FIRM`` parameters or more, in a conversation that demands values
in the form ``@name[value]``. Their programs follow the sentences of the question in order: each sentence is a comment,
and the code for it comes after the comment. Of the programs that were sampled for 164 questions, 35.4 % were right with
these examples and 28.5 % with KNOWLEDGE_EXAMPLES (Qwen2.5-Coder-1.5B, 6 and 32 samples for each question, standard
error of the difference 1.6 points); of the likeliest programs, 70 and 64 were right."""
