"""How the code-fence protocol shows a conversation to a model."""

from __future__ import annotations

import re

import pytest

from agent_kernel.core.messages import Message, ToolCall, assistant, system, tool_result, user
from agent_kernel.engines.local.tool_calling.code_fence_examples import EXAMPLES, FORM_EXAMPLES
from agent_kernel.engines.local.tool_calling.code_fence_prompt import (
    ANSWER,
    IMPORTED,
    RULES,
    chat,
    exchanges,
    leans_to_code,
    output_text,
    without_unnamed_data,
)
from tests.benchmarks.notebook_tasks import OF_EXAMPLES


def call(code: str, key: str = "c1") -> ToolCall:
    return ToolCall(key, "python", {"code": code})


def chat_contents(*messages: Message, retry: bool = False) -> list[str]:
    """Return the contents of the chat after the rules."""
    return [item["content"] for item in chat(messages, tools=True, retry=retry)][1:]


def test_a_call_is_a_fence_and_its_result_an_output() -> None:
    shown = chat_contents(user("How many?"), assistant("", [call("print(1)")]), tool_result(call(""), "1\n", "success"))

    assert shown == ["How many?", "```python\nprint(1)\n```", f"Output:\n1\n\n{ANSWER}"]


def test_a_call_of_another_tool_is_shown_as_what_it_was_called_with() -> None:
    search = ToolCall("c1", "search", {"query": "é"})
    shown = chat_contents(user("Find it."), assistant("", [search]), tool_result(search, "found", "success"))

    assert shown[1] == 'search: {"query": "é"}'


def test_hidden_context_stands_before_the_question() -> None:
    assert chat_contents(user("Variables: x: int = 3", hidden=True), user("Double it.")) == [
        "Variables: x: int = 3\n\nDouble it."
    ]


def test_rules_and_examples_come_only_with_tools() -> None:
    with_tools = chat([system("Be brief."), user("Hi")], tools=True, examples=EXAMPLES)
    without = chat([system("Be brief."), user("Hi")], tools=False, examples=EXAMPLES)

    assert with_tools[1 : 1 + len(EXAMPLES)] == [*EXAMPLES]
    assert with_tools[0]["content"] == f"Be brief. {RULES}"
    assert [dict(item) for item in without] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_failed_call_that_is_tried_again_leaves_its_error_and_the_facts_about_it() -> None:
    failed = tool_result(
        call(""), "7\nNames that exist: y.\nTraceback ...\nNameError: name 'x' is not defined", "error"
    )

    shown = chat_contents(user("Go."), assistant("", [call("x")]), failed, retry=True)

    assert shown == [
        "Go.\n\n(Note: an earlier try ended with: NameError: name 'x' is not defined. Names that exist: y.)"
    ]


def test_history_shows_a_retried_call_as_the_retry_did() -> None:
    first = [user("Go."), assistant("", [call("x", "c1")]), tool_result(call("", "c1"), "KeyError: 'a'", "error")]
    second = [assistant("", [call("y", "c2")]), tool_result(call("", "c2"), "2", "success"), assistant("It is 2.")]

    retry, later = chat_contents(*first, retry=True), chat_contents(*first, *second, user("Thanks"))

    assert later[: len(retry)] == retry
    assert later[1:] == ["```python\ny\n```", f"Output:\n2\n\n{ANSWER}", "It is 2.", "Thanks"]


def test_a_failure_that_is_not_tried_again_is_shown() -> None:
    shown = chat_contents(user("Go."), assistant("", [call("x")]), tool_result(call(""), "not allowed", "denied"))

    assert shown[-1] == f"Output (denied):\nnot allowed\n\n{ANSWER}"


def test_code_is_shown_byte_for_byte_as_it_was_generated() -> None:
    """Otherwise the ids of the turn before would not be found again."""
    assert chat_contents(user("Go."), assistant("", [call("\n  x = 1\n\n")]))[1] == "```python\n\n  x = 1\n\n```"


def test_a_question_about_a_variable_is_known_by_its_facts() -> None:
    facts = user("The kernel is another one.\nVariables: x: int = 3", hidden=True)

    assert exchanges([facts, user("Double it.")])[1][-1].names_things
    assert exchanges([user("Earlier variables: x: int = 3", hidden=True), user("Double it.")])[1][-1].names_things
    assert not exchanges([user("Hello")])[1][-1].names_things


def test_a_question_about_a_file_of_data_is_known_by_its_name() -> None:
    assert exchanges([user("How long is notes/diary.txt?")])[1][-1].names_things
    assert not exchanges([user("What is example.com? And e.g. 3.5?")])[1][-1].names_things


def test_a_retry_may_import_and_has_no_examples_to_copy_from() -> None:
    failed = [user("Go."), assistant("", [call("x")]), tool_result(call(""), "KeyError: 'a'", "error")]
    shown = chat(failed, tools=True, examples=EXAMPLES)
    again = chat(failed, tools=True, examples=EXAMPLES, retry=True)

    assert len(shown) > len(again) == 2
    assert IMPORTED in str(shown[0]["content"])
    assert IMPORTED not in str(again[0]["content"])


def test_tables_that_no_question_named_do_not_lean_to_code_and_are_left_out_of_the_choice() -> None:
    facts, question = user("Newest tables: sales: DataFrame, 3 rows x 2 columns", hidden=True), user("Thank you!")
    assert not leans_to_code(exchanges([facts, question])[1])
    assert without_unnamed_data([facts, question]) == [question]


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Describe the data.", True),
        ("Which columns are there?", True),
        ("Are there any missing values in this table?", True),
        ("Wie viele Zeilen sind es?", True),
        ("Décris les données.", True),
        ("What is a DataFrame?", False),
        ("What does NaN mean?", False),
        ("Which table tennis ball is the best?", False),
    ],
)
def test_a_question_about_the_data_keeps_the_facts_of_tables_that_it_does_not_name(question: str, kept: bool) -> None:
    facts = user("Newest tables: sales: DataFrame, 3 rows x 2 columns", hidden=True)
    assert (facts in without_unnamed_data([facts, user(question)])) == kept


def test_what_follows_a_turn_with_code_leans_to_code() -> None:
    ran = [user("Go."), assistant("", [call("x")]), tool_result(call(""), "1", "success"), assistant("It is 1.")]

    assert leans_to_code(exchanges([*ran, user("And now?")])[1])
    assert not leans_to_code(exchanges([user("Hi"), assistant("Hello"), user("And now?")])[1])
    assert not leans_to_code([])


def test_the_names_and_numbers_of_the_examples_are_ones_that_no_real_data_has() -> None:
    """A small model copies from them; ``make bench`` looks for each of these in what it wrote."""
    said = " ".join(str(item["content"]) for item in (*EXAMPLES, *FORM_EXAMPLES))
    numbers = set(re.findall(r"(?<![\w.-])\d{4,}(?:\.\d+)?|\d+\.\d{2}(?!\d)", said))
    columns = set(re.findall(r"\['(\w+)'\]", said))

    assert numbers - {"0.17"} == {"9173", "38.64", "6353", "1080.01", "61.07", "1218"}
    assert columns | {"guild", "quillon"} <= set(OF_EXAMPLES)
    assert all(re.search(word, said) for word in OF_EXAMPLES)
    assert not re.search(r"\b(?:cars?|sales|mpg|sold|406|df_?\d)\b", said)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("Wie viele Tage hat die Tabelle wetter.csv?", "Deutsch"),
        ("Was ist der Mittelwert von price in sales.csv?", "Deutsch"),
        ("Quelle est la moyenne de la colonne prix ?", "français"),
        ("¿Cuál es la media de la columna precio?", "español"),
        ("What is the mean of die.csv?", "plain sentence"),
        ("df.mean()", "plain sentence"),
        ("", "plain sentence"),
    ],
)
def test_the_answer_is_asked_for_in_the_language_of_the_question(question: str, word: str) -> None:
    result = tool_result(call("print(4.5)"), "4.5", "success")
    assert word in output_text(result, question).rpartition("\n")[2]
