"""Tests the native tool protocol with answers that models write, through the chat templates of model families."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, ToolCall, assistant, system, tool_result, user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineRequest,
    OutputFormat,
    ReasoningChunk,
    Sampling,
    TextChunk,
    ToolSpec,
)
from agent_kernel.engines.local.backend import LoadedModel
from agent_kernel.engines.local.tool_calling.native_protocol import Native
from agent_kernel.engines.local.tool_calling.tool_protocols import SMALL, AutoProtocol
from tests.engines.local.scripted_backend import BLOCK, ScriptedBackend, chunks_of
from tests.engines.local.tool_calling import chat_templates

CITY: Mapping[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("get_weather", "The weather of a city.", CITY, kind="test")
NOW = ToolSpec("now", "The time.", {"type": "object", "properties": {}}, kind="test")
PYTHON = ToolSpec("python", "Runs code.", {"type": "object", "properties": {"code": {"type": "string"}}}, kind="test")
TOOLS = (WEATHER, NOW)
ASKED = (system("Be brief."), user("How is the weather in Oslo?"))
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
BARE = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
DEGREES = OutputFormat(
    "json_schema", {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
)
SPECIALS = ("<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "<|python_tag|>")


def backend(*answers: str, template: str = chat_templates.HERMES) -> ScriptedBackend:
    return ScriptedBackend(template, answers, SPECIALS)


class Round:
    """The calls, the text and the end of one request."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
        self.reasoning = "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk))
        self.calls = [chunk.call for chunk in chunks if isinstance(chunk, CallChunk)]
        assert isinstance(chunks[-1], EndChunk)
        self.reason, self.usage, self.stopped = chunks[-1].reason, chunks[-1].usage, chunks[-1].stopped

    @property
    def made(self) -> list[tuple[str, dict[str, Any]]]:
        return [(call.name, dict(call.arguments)) for call in self.calls]

    @property
    def message(self) -> Message:
        return assistant(self.text, self.calls, self.reasoning)


async def rounds(played: ScriptedBackend, *requests: EngineRequest, fences: bool = False) -> list[Round]:
    protocol, completer = Native(played.loaded, fences=fences), played.completer()
    return [Round(await chunks_of(protocol, completer, request)) for request in requests]


async def one(played: ScriptedBackend, *, tools: Sequence[ToolSpec] = TOOLS, **facts: Any) -> Round:
    [done] = await rounds(played, EngineRequest(ASKED, tuple(tools), **facts))
    return done


async def conversation(played: ScriptedBackend, tools: Sequence[ToolSpec] = TOOLS, **facts: Any) -> list[Round]:
    """Run a round, its results and the next round, and then another question. Return the rounds."""
    protocol, completer = Native(played.loaded, fences=True), played.completer()
    messages, done = list(ASKED), []
    for _ in range(2):
        done.append(Round(await chunks_of(protocol, completer, EngineRequest(tuple(messages), tuple(tools), **facts))))
        messages += [done[-1].message, *(tool_result(call, "cold", "success") for call in done[-1].calls)]
        if not done[-1].calls:
            messages.append(user("And in Rome?"))
    return done


async def test_tools_are_rendered_by_the_template_and_a_call_in_tags_is_made() -> None:
    played = backend(f"I look.\n{CALL}")

    done = await one(played)

    assert (done.text, done.made, done.reason) == ("I look.", [("get_weather", {"city": "Oslo"})], "calls")
    assert '"name": "get_weather", "description": "The weather of a city."' in played.submitted[0][0]


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        pytest.param(chat_templates.HERMES, CALL, id="hermes as the template writes it"),
        pytest.param(chat_templates.HERMES, f"I look.\n\n{CALL}\n", id="hermes with other white space"),
        pytest.param(chat_templates.HERMES, BARE, id="bare JSON instead of tags"),
        pytest.param(chat_templates.HERMES, "```python\nprint(1)\n```", id="a fence"),
        pytest.param(chat_templates.HERMES, f"{CALL}\n{CALL}", id="two calls"),
        pytest.param(chat_templates.BARE, BARE.replace("arguments", "parameters"), id="bare as the template writes it"),
        pytest.param(chat_templates.BARE, f"{CALL}\n", id="tags instead of bare JSON"),
        pytest.param(chat_templates.PLAIN, CALL, id="a template without tools"),
        pytest.param(chat_templates.ALTERNATING, f"I look.\n{CALL}", id="a template with user and model only"),
        pytest.param(chat_templates.TEXT_ARGUMENTS, CALL, id="arguments as text"),
        pytest.param(chat_templates.HERMES, "It is cold.\n", id="words"),
    ],
)
async def test_the_next_prompt_begins_with_this_one_and_its_answer(template: str, answer: str) -> None:
    played = backend(answer, "Cold.", template=template)

    first, second = await conversation(played, (*TOOLS, PYTHON))

    asked, answered = played.submitted[0][0], played.submitted[1][0]
    written = answer.rstrip() if first.reason == "calls" else answer
    assert answered.startswith(asked + written)
    assert "cold" in answered or not first.calls
    assert second.usage.reused_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 2 * BLOCK


@pytest.mark.parametrize("tools", [(WEATHER,), TOOLS], ids=["one tool", "several"])
@pytest.mark.parametrize("template", ["HERMES", "BARE", "LISTED", "PLAIN", "ELEMENTS", "MAY_THINK", "THINKING"])
async def test_a_forced_call_is_begun_for_the_model_and_its_arguments_follow_the_schema(
    template: str, tools: tuple[ToolSpec, ...]
) -> None:
    key = "parameters" if template == "BARE" else "arguments"
    chosen = [f'{{"name": "get_weather", "{key}":'] if len(tools) > 1 else []
    played = backend(*chosen, '{"city": "Oslo"}', template=getattr(chat_templates, template))
    messages = ASKED[1:] if template == "LISTED" else ASKED

    [done] = await rounds(played, EngineRequest(messages, tools, tool_choice="required"))

    assert (done.text, done.made, done.reason) == ("", [("get_weather", {"city": "Oslo"})], "calls")
    prompt, decoding = played.submitted[-1]
    opening = {"BARE": "", "LISTED": "[TOOL_CALLS] ["}.get(template, "<tool_call>\n")
    assert prompt.endswith(f'{opening}{{"name": "get_weather", "{key}":')
    assert decoding.grammar is not None
    assert "city" in decoding.grammar.text


async def test_a_named_call_is_of_that_tool() -> None:
    played = backend("{}")

    done = await one(played, tool_choice="now")

    assert done.made == [("now", {})]


@pytest.mark.parametrize("choice", ["required", "get_weather"])
async def test_after_a_forced_call_nothing_is_computed_again(choice: str) -> None:
    chosen = ['{"name": "get_weather", "arguments":'] if choice == "required" else []
    played = backend(*chosen, '{"city": "Oslo"}', "Cold.")
    protocol, completer = Native(played.loaded, fences=False), played.completer()

    first = Round(await chunks_of(protocol, completer, EngineRequest(ASKED, TOOLS, tool_choice=choice)))
    later = (*ASKED, first.message, tool_result(first.calls[0], "cold", "success"))
    second = Round(await chunks_of(protocol, completer, EngineRequest(later, TOOLS)))

    assert second.usage.reused_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 2 * BLOCK


async def test_a_forced_call_that_is_cut_is_shown_and_not_made() -> None:
    done = await one(backend('{"city": "Oslo"}'), tool_choice="get_weather", sampling=Sampling(max_tokens=5))

    assert (done.calls, done.reason) == ([], "length")
    assert done.text.endswith('"arguments":{"cit')


async def test_a_tool_choice_that_is_not_on_offer_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        await one(backend(), tool_choice="fly")


async def test_without_choice_the_tools_stay_in_the_prompt_and_no_call_is_made() -> None:
    played = backend(CALL, f"It is cold. {CALL}")
    _, none = await rounds(played, EngineRequest(ASKED, TOOLS), EngineRequest(ASKED, TOOLS, tool_choice="none"))

    assert played.submitted[0][0] == played.submitted[1][0]
    assert (none.text, none.calls, none.reason) == ("It is cold.", [], "stop")


async def test_a_model_that_insists_on_calling_is_asked_again_in_a_form_without_calls() -> None:
    played = backend(CALL, "It is cold.")

    done = await one(played, tool_choice="none")

    assert (done.text, done.calls) == ("It is cold.", [])
    assert [decoding.grammar is None for _, decoding in played.submitted] == [True, False]


@pytest.mark.parametrize("template", ["HERMES", "THINKING", "MAY_THINK"])
async def test_words_have_their_format_and_a_call_is_free_of_it(template: str) -> None:
    words = backend('{"', '{"degrees": 3}', template=getattr(chat_templates, template))
    call = backend(
        CALL, CALL if template != "THINKING" else f"</think>{CALL}", template=getattr(chat_templates, template)
    )

    said, called = await one(words, output=DEGREES), await one(call, output=DEGREES)

    assert (said.text, said.calls, said.reason) == ('{"degrees": 3}', [], "stop")
    assert "degrees" in words.submitted[1][0]
    assert words.submitted[1][1].grammar is not None
    assert (called.text, called.made) == ("", [("get_weather", {"city": "Oslo"})])
    assert call.submitted[1][1].grammar is None


async def test_a_format_and_a_call_that_must_be_made_contradict_each_other() -> None:
    with pytest.raises(InvalidRequest):
        await one(backend(), output=DEGREES, tool_choice="required")


async def test_without_tools_the_answer_is_text_whatever_it_looks_like() -> None:
    done = await one(backend(CALL), tools=())

    assert (done.text, done.calls) == (CALL, [])


async def test_only_one_call_is_made_where_parallel_ones_are_not_wanted() -> None:
    played = backend(f"{CALL}\n{CALL}", "Cold.")
    first, second = await conversation(played, parallel_calls=False)

    assert len(first.calls) == 1
    assert first.usage.completion_tokens <= len(CALL)
    assert second.usage.reused_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 2 * BLOCK


async def test_after_fenced_code_nothing_is_decoded_before_its_output_is_there() -> None:
    played = backend("```python\nprint(1)\n```\nOutput: 2, as I invented.")

    [done] = await rounds(played, EngineRequest(ASKED, (PYTHON,)), fences=True)

    assert (done.text, done.made) == ("", [("python", {"code": "print(1)"})])


async def test_a_call_cut_by_max_tokens_is_shown_and_not_made() -> None:
    done = await one(backend(CALL), sampling=Sampling(max_tokens=20))

    assert (done.calls, done.reason) == ([], "length")
    assert done.text == CALL.replace("<tool_call>", "")[:19].join(("<tool_call>", ""))


async def test_a_stop_string_inside_a_call_ends_it_unmade() -> None:
    done = await one(backend(CALL), sampling=Sampling(stop=("Oslo",)))

    assert (done.calls, done.reason, done.stopped) == ([], "stop", "Oslo")
    assert done.text == CALL[: CALL.index("Oslo")]


async def test_broken_arguments_go_to_the_toolbox_as_they_were_written() -> None:
    broken = '{"name": "get_weather", "arguments": {"city": "Oslo}}'

    done = await one(backend(f"<tool_call>\n{broken}\n</tool_call>"))

    assert done.made == [("get_weather", {"_raw": broken})]


async def test_calls_that_are_elements_are_read_by_their_declared_form() -> None:
    call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
    done = await one(backend(f"I look.\n\n{call}", template=chat_templates.ELEMENTS))

    assert (done.text, done.made) == ("I look.", [("get_weather", {"city": "Oslo"})])


async def test_numbers_in_elements_become_what_the_schema_says() -> None:
    add = ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "integer"}}}, kind="test")
    call = "<function=add>\n<parameter=a>\n3\n</parameter>\n</function>"

    done = await one(backend(call, template=chat_templates.ELEMENTS), tools=(add,))

    assert done.made == [("add", {"a": 3})]


async def test_half_an_element_is_shown_and_not_made_when_tokens_run_out() -> None:
    call = "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"
    done = await one(backend(call, template=chat_templates.ELEMENTS), sampling=Sampling(max_tokens=40))

    assert (done.calls, done.reason, done.text) == ([], "length", call[:40])


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        (chat_templates.MAY_THINK, f"<think>\nHm.\n</think>\n\n{CALL}"),
        (chat_templates.THINKING, f"Hm.\n</think>\n\n{CALL}"),
    ],
    ids=["the model opens the block", "the prompt opens it"],
)
async def test_thinking_comes_apart_and_is_in_no_later_prompt(template: str, answer: str) -> None:
    played = backend(answer, "Cold.", template=template)

    first, _ = await conversation(played)

    assert first.reasoning.strip() == "Hm."
    assert (first.text, first.made) == ("", [("get_weather", {"city": "Oslo"})])
    assert "Hm." not in played.submitted[1][0]


async def test_thinking_that_never_ends_is_no_answer() -> None:
    done = await one(backend("Hm, and hm", template=chat_templates.THINKING))

    assert (done.reasoning, done.text, done.reason) == ("Hm, and hm", "", "stop")


async def test_several_calls_become_one_at_a_time_for_templates_that_take_no_more() -> None:
    calls = [ToolCall(f"call_{at}", "get_weather", {"city": city}) for at, city in enumerate(("Oslo", "Rome"))]
    results = [tool_result(call, f"cold in {call.arguments['city']}", "success") for call in calls]
    played = backend("Both are cold.", template=chat_templates.BARE)

    await rounds(played, EngineRequest((*ASKED, assistant("", calls), *results), TOOLS))

    prompt = played.submitted[0][0]
    assert prompt.index('"Oslo"') < prompt.index("cold in Oslo") < prompt.index('"Rome"') < prompt.index("cold in Rome")


async def test_ids_of_calls_from_elsewhere_are_made_fit_for_the_template() -> None:
    call = ToolCall("toolu_01ABCdefGHIjkl", "get_weather", {"city": "Oslo"})
    played = backend("Cold.", template=chat_templates.LISTED)

    messages = (*ASKED[1:], assistant("", [call]), tool_result(call, "cold", "success"))
    [done] = await rounds(played, EngineRequest(messages, TOOLS))

    assert done.text == "Cold."


async def test_a_system_message_reaches_a_template_that_takes_none() -> None:
    played = backend("Cold.", template=chat_templates.LISTED)

    await one(played)

    assert "Be brief." in played.submitted[0][0]


async def test_an_edited_call_is_rendered_anew() -> None:
    played = backend(BARE, "Cold.")
    protocol, completer = Native(played.loaded, fences=False), played.completer()
    first = Round(await chunks_of(protocol, completer, EngineRequest(ASKED, TOOLS)))
    edited = ToolCall(first.calls[0].id, "get_weather", {"city": "Rome"})

    later = (*ASKED, assistant("", [edited]), tool_result(edited, "warm", "success"))
    await chunks_of(protocol, completer, EngineRequest(later, TOOLS))

    assert '"city": "Rome"' in played.submitted[1][0]
    assert BARE not in played.submitted[1][0]


@pytest.mark.parametrize(
    ("parameters", "tools", "fenced"),
    [
        (SMALL - 1, (PYTHON,), True),
        (0, (PYTHON,), True),
        (SMALL - 1, (PYTHON, WEATHER), False),
        (SMALL, (PYTHON,), False),
    ],
    ids=["small, python only", "unknown size", "small, other tools", "large"],
)
async def test_a_small_model_writes_code_in_fences_as_long_as_python_is_its_only_tool(
    parameters: int, tools: tuple[ToolSpec, ...], fenced: bool
) -> None:
    played = backend("```python\n", "print(1)\n```", "")
    loaded = LoadedModel(BLOCK, 100, {}, template=chat_templates.HERMES, parameters=parameters)

    done = Round(await chunks_of(AutoProtocol(loaded), played.completer(), EngineRequest(ASKED, tools)))

    assert ("```python code block" in played.submitted[0][0]) == fenced
    assert ('"name": "python"' in played.submitted[0][0]) != fenced
    assert done.reason in ("calls", "stop")


async def test_arguments_survive_the_way_to_the_template_and_back() -> None:
    arguments = {"city": 'Zürich "x" \\ \n', "deep": [1, 2.5, None, {"a": True}]}
    text = (
        f"<tool_call>\n{json.dumps({'name': 'get_weather', 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    )
    played = backend(text, "Cold.")

    first, second = await conversation(played)

    assert first.made == [("get_weather", arguments)]
    assert second.usage.reused_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 2 * BLOCK
