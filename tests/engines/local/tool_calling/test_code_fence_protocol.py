"""Tests the code that a fence returns, and the second attempt after code that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from agent_kernel.core.messages import (
    Message,
    Status,
    ToolCall,
    assistant,
    corrected_call,
    correction_id,
    tool_result,
    user,
)
from agent_kernel.core.protocols import CallChunk, EndChunk, EngineRequest, Sampling, TextChunk, ToolSpec
from agent_kernel.engines.local.backend import LoadedModel, StepOutput
from agent_kernel.engines.local.tool_calling.code_fence_examples import FORM_EXAMPLES
from agent_kernel.engines.local.tool_calling.code_fence_prompt import ANSWER_IN_FORM
from agent_kernel.engines.local.tool_calling.code_fence_protocol import (
    MAX_CODE_TOKENS,
    RESAMPLE_TEMPERATURE,
    RESAMPLES,
    Fence,
)
from agent_kernel.engines.local.tool_calling.tool_protocols import FIRM, fence_for
from tests.engines.local.scripted_backend import ScriptedBackend, chunks_of
from tests.engines.local.tool_calling import chat_templates

PYTHON = ToolSpec("python", "Runs code.", {}, kind="test")
FAILED = "x = a.b\nprint(x)\n"


async def second_try(*answers: str) -> tuple[str, ScriptedBackend, EndChunk]:
    """Return the code of the second attempt after FAILED, when the model writes these programs."""
    backend = ScriptedBackend(chat_templates.PLAIN, [f"{answer}```" for answer in answers])
    call = ToolCall("c1", "python", {"code": FAILED})
    messages = (user("Go."), assistant("", [call]), tool_result(call, "AttributeError: b", "error"))
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest(tuple(messages), (PYTHON,)))
    (code,) = (chunk.call.arguments["code"] for chunk in chunks if isinstance(chunk, CallChunk))
    assert isinstance(chunks[-1], EndChunk)
    return code, backend, chunks[-1]


@pytest.mark.parametrize("same", [FAILED, "x = a.b  # again\n\nprint( x )\n"])
async def test_a_second_try_that_is_the_failed_program_is_sampled_anew(same: str) -> None:
    code, backend, end = await second_try(same, "print(a)\n")
    assert code == "print(a)\n"
    assert [decoding.temperature for _, decoding in backend.submitted] == [0.0, RESAMPLE_TEMPERATURE]
    assert end.usage.completion_tokens > len("print(a)\n```"), "the first sample was decoded too"


def turn_so_far(question: str, *programs: tuple[str, str, Status], corrected: bool = False) -> list[Message]:
    """Return the messages of a turn with these calls: (code, result, status). With ``corrected``, each call after the
    first one corrects the one before it."""
    messages, key = [user(question)], "c"
    for code, result, status in programs:
        call = ToolCall(key, "python", {"code": code})
        key = correction_id(key) if corrected else f"{key}c"
        messages += [assistant("", [call]), tool_result(call, result, status)]
    return messages


async def reply_to(messages: Sequence[Message], *answers: str) -> tuple[str, str, ScriptedBackend]:
    """Return the code and the text of the next round, in which the model writes ``answers``."""
    backend = ScriptedBackend(chat_templates.PLAIN, answers)
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest(tuple(messages), (PYTHON,)))
    code = "".join(str(chunk.call.arguments["code"]) for chunk in chunks if isinstance(chunk, CallChunk))
    return code, "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)), backend


REMOVED = "Traceback:\n  line 1, in <module>\n    x = np.NaN\nAttributeError: `np.NaN` was removed. Use `np.nan`."


async def test_a_program_whose_error_says_how_to_correct_it_is_corrected_without_the_model() -> None:
    code, _, backend = await reply_to(turn_so_far("Go.", ("x = np.NaN\n", REMOVED, "error")))
    assert code == "x = np.nan\n"
    assert not backend.submitted


async def test_the_id_of_a_correction_names_the_call_that_it_corrects() -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, [])
    request = EngineRequest(tuple(turn_so_far("Go.", ("x = np.NaN\n", REMOVED, "error"))), (PYTHON,))
    (call,) = (c.call for c in await chunks_of(Fence(), backend.completer(), request) if isinstance(c, CallChunk))
    assert corrected_call(call.id) == "c"


async def test_a_correction_is_no_second_try_of_the_model_and_is_made_once() -> None:
    wrong: tuple[str, str, Status] = ("x = np.nan\n", "ValueError: no", "error")
    tried = turn_so_far("Go.", ("x = np.NaN\n", REMOVED, "error"), wrong, corrected=True)
    code, _, _ = await reply_to(tried, "x = 0\n```")
    assert code == "x = 0\n"
    again = turn_so_far("Go.", ("x = np.nan\n", "ValueError: no", "error"), ("x = np.NaN\n", REMOVED, "error"))
    assert (await reply_to(again))[0] == ""


FORM = "The mean? Answer in the form @mean[value] @count[n]."


async def test_values_that_the_program_printed_in_the_demanded_form_are_the_answer() -> None:
    printed = "mean: 3.5\n@count[4]\n@mean[3.5]"
    _, text, backend = await reply_to(turn_so_far(FORM, ("print(m)", printed, "success")))
    assert text == "@mean[3.5]\n@count[4]"
    assert not backend.submitted


@pytest.mark.parametrize("printed", ["3.5 4", "n = 7\n@3.5[@4]", "(3.5, 4)", "@3.5 @4", "@3.5 [4]"])
async def test_as_many_numbers_as_demanded_values_are_the_answer_in_their_order(printed: str) -> None:
    _, text, backend = await reply_to(turn_so_far(FORM, ("print(m)", printed, "success")))
    assert text == "@mean[3.5]\n@count[4]"
    assert not backend.submitted


@pytest.mark.parametrize(
    ("printed", "mean"), [("@high @4", "high"), ("@Old Mill @4", "Old Mill"), ("@high[4]", "high")]
)
async def test_words_after_an_at_sign_are_values_too(printed: str, mean: str) -> None:
    _, text, backend = await reply_to(turn_so_far(FORM, ("print(m)", printed, "success")))
    assert text == f"@mean[{mean}]\n@count[4]"
    assert not backend.submitted


async def test_words_without_an_at_sign_may_be_labels() -> None:
    for printed in ("mean 4", "@high[3.5] @low[4]"):
        _, text, _ = await reply_to(turn_so_far(FORM, ("print(m)", printed, "success")), "@mean[4] @count[1]")
        assert text == "@mean[4] @count[1]"


async def test_the_model_does_not_see_the_warnings_beside_a_result() -> None:
    warned = "21.1\nline 4: UserWarning: Boolean Series key will be reindexed."
    _, _, backend = await reply_to(turn_so_far("The mean?", ("print(m)", warned, "success")), "It is 21.1.")
    assert "21.1" in backend.submitted[0][0]
    assert "UserWarning" not in backend.submitted[0][0]


async def test_otherwise_the_model_states_the_values_in_the_demanded_form() -> None:
    answer = "@mean[3.5] @count[4]"
    _, text, backend = await reply_to(turn_so_far(FORM, ("print(m)", "3.5\n4", "success")), answer)
    assert text == answer
    ((prompt, decoding),) = backend.submitted
    assert ANSWER_IN_FORM in prompt
    assert decoding.grammar is not None
    assert re.fullmatch(decoding.grammar.text, answer)
    assert not re.fullmatch(decoding.grammar.text, "The mean is 3.5.")


@pytest.mark.parametrize(("fact", "shown"), [("Variables: t: DataFrame, 9 rows", True), ("Today is Friday.", False)])
async def test_a_question_about_data_that_names_a_method_is_shown_an_example_of_it(fact: str, shown: bool) -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, ["print(stats.shapiro(v))\n```"])
    question = user("Is it normal by the Shapiro-Wilk test?")
    request = EngineRequest((user(fact, hidden=True), question), (PYTHON,), tool_choice="python")
    await chunks_of(Fence(), backend.completer(), request)
    assert ("stats.shapiro(c.dropna())" in backend.submitted[0][0]) is shown


@pytest.mark.parametrize(
    ("printed", "note"),
    [
        ("@mean[a    1.0\nb    2.0\nName: v]\n@count[4]", "several values for mean"),
        ("@mean[nan] @count[4]", "printed nan for mean"),
        ("@mean[3.5] @count[4]", ""),
        ("3.5 4", ""),
    ],
)
async def test_a_value_that_is_no_answer_is_computed_once_more(printed: str, note: str) -> None:
    turn = turn_so_far(FORM, ("print(m)\n", printed, "success"))
    code, _, backend = await reply_to(
        turn, "mean = 1\ncount = 2\nprint(f'@mean[{mean}] @count[{count}]')\n```" if note else "@mean[3.5] @count[4]"
    )
    assert bool(code) == bool(note)
    assert all(note in prompt for prompt, _ in backend.submitted)


async def test_a_program_that_repeats_a_line_is_sampled_anew() -> None:
    line = "table['a'] = table['a'].fillna(method='ffill')\n"
    backend = ScriptedBackend(chat_templates.PLAIN, [line * 9, "print(1)\n```"])
    request = EngineRequest((user("Fill the gaps."),), (PYTHON,), tool_choice="python")
    chunks = await chunks_of(Fence(), backend.completer(), request)
    (call,) = [chunk.call for chunk in chunks if isinstance(chunk, CallChunk)]
    assert call.arguments["code"] == "print(1)\n"
    assert [decoding.temperature for _, decoding in backend.submitted] == [0.0, RESAMPLE_TEMPERATURE]


@pytest.mark.parametrize("max_tokens", [None, MAX_CODE_TOKENS])
async def test_a_program_that_does_not_end_is_sampled_anew_unless_the_request_limits_it(max_tokens: int | None) -> None:
    endless = "".join(f"value_{number} = {number}\n" for number in range(MAX_CODE_TOKENS))
    backend = ScriptedBackend(chat_templates.PLAIN, [endless, "print(1)\n```"])
    sampling = Sampling(max_tokens=max_tokens)
    request = EngineRequest((user("Go."),), (PYTHON,), sampling=sampling, tool_choice="python")
    chunks = await chunks_of(Fence(), backend.completer(), request)
    assert len(backend.submitted) == (2 if max_tokens is None else 1)
    assert isinstance(chunks[-1], EndChunk)
    assert chunks[-1].reason == ("calls" if max_tokens is None else "length")


async def test_a_program_that_always_repeats_a_line_is_not_run() -> None:
    line = "table['a'] = table['a'].fillna(method='ffill')\n"
    backend = ScriptedBackend(chat_templates.PLAIN, [line * 9] * (RESAMPLES + 1))
    chunks = await chunks_of(
        Fence(), backend.completer(), EngineRequest((user("Go."),), (PYTHON,), tool_choice="python")
    )
    assert not [chunk for chunk in chunks if isinstance(chunk, CallChunk)]
    assert line in "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


async def test_a_second_try_that_lacks_the_same_name_is_sampled_anew() -> None:
    tried = turn_so_far("Go.", ("print(low)\n", "NameError: name 'low' is not defined", "error"))
    code, _, backend = await reply_to(tried, "print(min(low))\n```", "low = 1\nprint(low)\n```")
    assert code == "low = 1\nprint(low)\n"
    assert len(backend.submitted) == 2


@pytest.mark.parametrize(
    ("question", "programs"),
    [
        ("Sum a and call the result total.", 2),
        ("Make a table called total of a.", 2),
        ("Sum the column called total.", 1),
        ("How old is the child named Total?", 1),
        ("Write a to a file named total.csv.", 1),
    ],
)
async def test_a_program_that_does_not_set_the_variable_that_the_question_names_is_sampled_anew(
    question: str, programs: int
) -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, ["print('done')\n```", "total = sum(a)\n```"])
    request = EngineRequest((user(question),), (PYTHON,), tool_choice="python")
    await chunks_of(Fence(), backend.completer(), request)
    assert len(backend.submitted) == programs


async def test_another_program_is_taken_as_it_is() -> None:
    code, backend, _ = await second_try("print(a)\n")
    assert code == "print(a)\n"
    assert len(backend.submitted) == 1


async def test_a_model_that_only_repeats_itself_is_asked_a_few_times_with_another_seed_each() -> None:
    code, backend, _ = await second_try(*[FAILED] * (RESAMPLES + 1))
    assert code == FAILED
    assert [decoding.seed for _, decoding in backend.submitted[1:]] == list(range(1, RESAMPLES + 1))


async def test_code_that_prints_many_rows_for_a_question_for_one_value_is_tried_once_more() -> None:
    call = ToolCall("c1", "python", {"code": "print(s.units * s.price.sum())"})
    rows = "\n".join(f"{number}  {number}.5" for number in range(10))
    first = (user("What is the total revenue?"), assistant("", [call]), tool_result(call, rows, "success"))
    backend = ScriptedBackend(chat_templates.PLAIN, ["print((s.units * s.price).sum())\n```"])
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest(first, (PYTHON,)))
    (second,) = (chunk.call for chunk in chunks if isinstance(chunk, CallChunk))
    assert second.arguments["code"] == "print((s.units * s.price).sum())\n"
    ((prompt, _),) = backend.submitted
    assert "(Note: an earlier try printed 10 rows, but the question asks for one value)" in prompt
    assert "s.price.sum())\n" not in prompt

    again = (*first, assistant("", [second]), tool_result(second, rows, "success"))
    backend = ScriptedBackend(chat_templates.PLAIN, ["The total is unknown."])
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest(again, (PYTHON,)))
    assert not any(isinstance(chunk, CallChunk) for chunk in chunks), "a second time it shows the rows"


SAME = "def net(gross, vat=0.19):\n    return gross * (1 - vat)\n"
OTHER = "def net(gross, vat=0.19):\n    return gross / (1 + vat)\n"


async def repair(*answers: str, calls: int) -> tuple[str, str, ScriptedBackend]:
    """Return the next code and the text of a turn that asks to fix a function, after ``calls`` programs that defined it
    as it was. The model writes ``answers``."""
    source = "".join(f"    {line}\n" for line in SAME.splitlines())
    facts = user(f"Variables: net: function net(gross, vat), defined by\n{source}", hidden=True)
    messages = [facts, user("Fix net.")]
    for number in range(calls):
        call = ToolCall(f"c{number}", "python", {"code": f"{SAME}print(net(119), {number})"})
        messages += [assistant("", [call]), tool_result(call, f"96.39 {number}", "success")]
    backend = ScriptedBackend(chat_templates.PLAIN, [f"{answer}```" for answer in answers])
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest(tuple(messages), (PYTHON,)))
    code = "".join(str(chunk.call.arguments["code"]) for chunk in chunks if isinstance(chunk, CallChunk))
    return code, "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)), backend


async def test_code_that_left_the_function_to_be_fixed_as_it_was_is_tried_once_more() -> None:
    code, _, backend = await repair(f"{SAME}print(net(119))\n", OTHER, calls=1)
    assert code == OTHER
    note = "(Note: an earlier try defined net again without any change, so net does the same as before)"
    assert all(note in prompt for prompt, _ in backend.submitted)
    assert [decoding.temperature for _, decoding in backend.submitted] == [0.0, RESAMPLE_TEMPERATURE]


async def test_a_function_that_no_try_has_changed_is_not_reported_as_fixed() -> None:
    code, text, backend = await repair(calls=2)
    assert code == ""
    assert text == "I did not manage to do this. The last try defined net again without any change."
    assert not backend.submitted


async def test_a_function_with_an_example_in_the_question_is_checked_by_its_code() -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, [f"{SAME}```"])
    request = EngineRequest((user("net(119) should be 100. Fix net."),), (PYTHON,), tool_choice="python")
    (call,) = [
        chunk.call for chunk in await chunks_of(Fence(), backend.completer(), request) if isinstance(chunk, CallChunk)
    ]
    check = "assert abs(net(119) - 100) <= 0.005, 'net(119) should be 100, but is ' + repr(net(119))"
    assert call.arguments["code"] == f"{SAME}{check}\n"


@pytest.mark.parametrize(
    ("written", "is_answer"),
    [
        ("graph TD\n  A[Read] --> B[Plot]\n", True),
        ("%% steps\nsequenceDiagram\n  A->>B: read\n", True),
        ('pie title Rain\n  "May": 61\n', True),
        ("graph = {}\nprint(graph)\n", False),
        ("timeline\n", False),
        ("timeline.plot()\n", False),
    ],
)
async def test_a_mermaid_diagram_is_an_answer_and_is_not_run(written: str, is_answer: bool) -> None:
    for choice in ("auto", "python"):
        first_tokens = ["`", "`"] if choice == "auto" else []
        backend = ScriptedBackend(chat_templates.PLAIN, [*first_tokens, f"{written}```"])
        request = EngineRequest((user("Draw the steps as a diagram."),), (PYTHON,), tool_choice=choice)
        chunks = await chunks_of(Fence(margin=inf, named_margin=inf), backend.completer(), request)
        text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
        if is_answer and choice == "auto":
            assert text == f"```mermaid\n{written}```"
            assert isinstance(chunks[-1], EndChunk)
            assert chunks[-1].reason == "stop"
        else:
            assert any(isinstance(chunk, CallChunk) for chunk in chunks)
            assert not text


RENT = "flats['rent'] holds text. Convert it first: rent_number = pd.to_numeric(flats['rent'], errors='coerce')"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (["print(flats['rent'].mean())\n", "print(rent_number.mean())\n"], "print(rent_number.mean())\n"),
        (["print(rent_number.mean())\n"], "print(rent_number.mean())\n"),
        (["print(flats['rent'].mean())\n"] * 3, "print(flats['rent'].mean())\n"),
    ],
)
async def test_code_that_computes_with_text_gets_the_line_that_converts_it(written: list[str], code: str) -> None:
    asked = (user(f"Variables: flats: DataFrame\n{RENT}", hidden=True), user("What is the mean rent in flats?"))
    backend = ScriptedBackend(chat_templates.PLAIN, [f"{program}```" for program in written])
    request = EngineRequest(asked, (PYTHON,), tool_choice="python")
    chunks = await chunks_of(Fence(), backend.completer(), request)
    (call,) = (chunk.call for chunk in chunks if isinstance(chunk, CallChunk))
    assert call.arguments["code"] == f"{RENT.partition('first: ')[2]}\n{code}"
    assert len(backend.submitted) == min(len(written), 2)


@pytest.mark.parametrize(
    ("said", "runs_code"),
    [
        ("I don't have access to information about who works here.", True),
        ("Ich habe keinen Zugriff auf Ihre Daten.", True),
        ("The longest-serving one. More data would help.", False),
    ],
)
async def test_a_text_that_misses_the_data_becomes_code_where_the_notebook_has_a_table(
    said: str, runs_code: bool
) -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, ["I", "```", said, "print(staff.hired.min())\n```"])
    facts = user("Newest tables: staff: DataFrame, 3 rows x 2 columns: name str, hired str", hidden=True)
    fence = Fence(margin=-1)
    chunks = await chunks_of(
        fence, backend.completer(), EngineRequest((facts, user("Who has worked here longest?")), (PYTHON,))
    )
    assert any(isinstance(chunk, CallChunk) for chunk in chunks) == runs_code
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == ("" if runs_code else said)


@pytest.mark.parametrize(
    "written", [" x = 1\nprint(x)\n", "  x = 1\n  print(x)\n", "\tx = 1\nprint(x)\n", "x = 1\n print(x)\n"]
)
async def test_a_program_with_an_unexpected_indentation_begins_at_the_margin(written: str) -> None:
    code, _, _ = await second_try(written)
    assert code == "x = 1\nprint(x)\n"


async def test_the_blocks_of_a_program_stay_indented() -> None:
    code, _, _ = await second_try("for n in y:\n    print(n)\n")
    assert code == "for n in y:\n    print(n)\n"


async def test_a_text_answer_is_written_without_the_facts_that_the_question_did_not_ask_for() -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, ["T", "```", "Thanks to you."])
    facts = user("Newest tables: sales: DataFrame, 3 rows x 2 columns", hidden=True)
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest((facts, user("Thank you!")), (PYTHON,)))
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == "Thanks to you."
    assert not any("sales" in prompt for prompt, _ in backend.submitted)


class LikelyText(ScriptedBackend):
    """A model for which the opening fence is less likely, by ``margin``, than the first token of a text."""

    def __init__(self, margin: float, *answers: str) -> None:
        super().__init__(chat_templates.PLAIN, answers)
        self._margin = margin

    def step(self) -> list[tuple[int, StepOutput]]:
        pieces = super().step()
        return [
            (key, replace(piece, logprobs=(-self._margin if self.spelled(piece.ids) == "`" else 0.0,)))
            if piece.ids
            else (key, piece)
            for key, piece in pieces
        ]


@pytest.mark.parametrize(
    ("parameters", "margin", "runs_code"), [(FIRM - 1, 3.0, True), (FIRM, 3.0, False), (FIRM, 0.5, True)]
)
async def test_after_code_a_larger_model_writes_text_unless_code_is_almost_as_likely(
    parameters: int, margin: float, runs_code: bool
) -> None:
    backend = LikelyText(margin, "T", "```", "print(1)\n```" if runs_code else "A table with rows and columns.")
    call = ToolCall("c1", "python", {"code": "print(2)"})
    turn = (user("Print 2."), assistant("", [call]), tool_result(call, "2", "success"), assistant("It is 2."))
    fence = fence_for(LoadedModel(1, 1, {}, template=chat_templates.PLAIN, parameters=parameters))
    request = EngineRequest((*turn, user("Thanks! What is a DataFrame?")), (PYTHON,))
    chunks = await chunks_of(fence, backend.completer(), request)
    assert any(isinstance(chunk, CallChunk) for chunk in chunks) == runs_code


@pytest.mark.parametrize("parameters", [FIRM - 1, FIRM])
async def test_a_larger_model_is_shown_that_a_question_of_general_knowledge_needs_no_code(parameters: int) -> None:
    backend = LikelyText(3.0, "T", "```", "Four.")
    fence = fence_for(LoadedModel(1, 1, {}, template=chat_templates.PLAIN, parameters=parameters))
    await chunks_of(fence, backend.completer(), EngineRequest((user("How many seasons are there?"),), (PYTHON,)))
    assert len(backend.submitted) == 3
    assert all(("Which metal is liquid" in prompt) == (parameters >= FIRM) for prompt, _ in backend.submitted)


async def test_a_question_that_demands_values_in_a_form_is_answered_by_code() -> None:
    backend = LikelyText(6.0, "T", "```", "print(t['v'].max())\n```")
    facts = user("Variables: t: DataFrame, 4 rows x 1 columns: v int64\nfirst row: v=7", hidden=True)
    fence = fence_for(LoadedModel(1, 1, {}, template=chat_templates.PLAIN, parameters=FIRM))
    request = EngineRequest((facts, user("The highest v in t? Answer in the form @highest[value].")), (PYTHON,))
    chunks = await chunks_of(fence, backend.completer(), request)
    assert any(isinstance(chunk, CallChunk) for chunk in chunks)


@pytest.mark.parametrize(("parameters", "demanded"), [(FIRM - 1, True), (FIRM, True), (FIRM, False)])
async def test_a_larger_model_is_shown_programs_in_the_demanded_form_for_the_rest_of_the_conversation(
    parameters: int, demanded: bool
) -> None:
    form = " Answer in the form @n[count]." if demanded else ""
    fence = fence_for(LoadedModel(1, 1, {}, template=chat_templates.PLAIN, parameters=parameters))
    first = user(f"How many rows has t?{form}")
    for messages in [(first,), (first, assistant("It has 4."), user("And u?"))]:
        backend = ScriptedBackend(chat_templates.PLAIN, ["print(1)\n```"])
        request = EngineRequest(messages, (PYTHON,), tool_choice="python")
        await chunks_of(fence, backend.completer(), request)
        shows_form = [FORM_EXAMPLES[1]["content"] in prompt for prompt, _ in backend.submitted]
        assert shows_form == [demanded and parameters >= FIRM]


MEDIAN = "Use the table t. What is the median price?"


async def written_for(question: str, *programs: str, temperature: float = 0.0) -> tuple[str, ScriptedBackend]:
    """Return the code of the first round, in which the model writes these programs."""
    backend = ScriptedBackend(chat_templates.PLAIN, [f"{program}```" for program in programs])
    sampling = Sampling(temperature=temperature)
    request = EngineRequest((user(question),), (PYTHON,), sampling, tool_choice="python")
    chunks = await chunks_of(Fence(), backend.completer(), request)
    (call,) = (chunk.call for chunk in chunks if isinstance(chunk, CallChunk))
    return str(call.arguments["code"]), backend


async def test_a_program_that_leaves_out_a_sentence_is_written_again_behind_it() -> None:
    code, backend = await written_for(MEDIAN, "print(t['price'].mean())\n", "print(t['price'].median())\n")
    assert code == "# What is the median price?\nprint(t['price'].median())\n"
    assert backend.submitted[1][0].endswith("```python\n# What is the median price?\n")


async def test_the_first_program_is_kept_if_the_second_leaves_out_as_much() -> None:
    code, backend = await written_for(MEDIAN, "print(t['price'].mean())\n", "print(t['price'].max())\n")
    assert code == "print(t['price'].mean())\n"
    assert len(backend.submitted) == 2


async def test_a_sample_is_not_written_again() -> None:
    code, backend = await written_for(MEDIAN, "print(t['price'].mean())\n", temperature=0.7)
    assert code == "print(t['price'].mean())\n"
    assert len(backend.submitted) == 1
