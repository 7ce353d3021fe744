"""Tests the parser with answers that models really write: it separates text from calls, whatever the split
into pieces.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.protocols import CallChunk, TextChunk
from agent_kernel.engines.local.tool_calling.call_parser import CallParser

Read: TypeAlias = list[str | tuple[str, Mapping[str, Any]]]
TOOLS = ("get_weather", "python")
OSLO = ("get_weather", {"city": "Oslo"})
ROME = ("get_weather", {"city": "Rome"})


def read(pieces: Sequence[str], *, tools: Sequence[str] = TOOLS, fences: bool = True, cut: bool = False) -> Read:
    """Parse the pieces. Return texts, adjacent ones joined, and calls without their ids."""
    parser = CallParser(tools, fences=fences)
    parts = [part for piece in pieces for part in parser.push(piece)] + parser.finish(cut=cut)
    found: Read = []
    for part in parts:
        if isinstance(part, CallChunk):
            found.append((part.call.name, dict(part.call.arguments)))
        elif found and isinstance(found[-1], str):
            found[-1] += part.text
        else:
            found.append(part.text)
    return found


HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
HERMES_TWO = f'{HERMES}\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Rome"}}}}\n</tool_call>'
BARE = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
ANSWERS: dict[str, tuple[str, Read]] = {
    "hermes": (HERMES, [OSLO]),
    "hermes, two": (HERMES_TWO, [OSLO, ROME]),
    "hermes between words": (f"I look.\n\n{HERMES}\n\nDone.", ["I look.", OSLO, "\nDone."]),
    "hermes, python's literals": (
        "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Oslo', 'now': True, 'unit': None}}</tool_call>",
        [("get_weather", {"city": "Oslo", "now": True, "unit": None})],
    ),
    "hermes, last bracket forgotten": (HERMES.replace("}}", "}"), [OSLO]),
    "hermes, closing tag forgotten": (HERMES_TWO.replace("</tool_call>", ""), [OSLO, ROME]),
    "hermes, no arguments": ('<tool_call>{"name": "now"}</tool_call>', [("now", {})]),
    "hermes, arguments as text": (
        r'<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}</tool_call>',
        [OSLO],
    ),
    "hermes, line break in a string": (
        '<tool_call>{"name": "python", "arguments": {"code": "x = 1\nprint(x)"}}</tool_call>',
        [("python", {"code": "x = 1\nprint(x)"})],
    ),
    "hermes, a string left open": (
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo}}</tool_call> ok',
        [("get_weather", {"_raw": '{"name": "get_weather", "arguments": {"city": "Oslo}}'}), "ok"],
    ),
    "qwen2.5 small, no tags": (BARE, [OSLO]),
    "qwen2.5 small, a closing tag only": (f"{BARE}\n</tool_call>", [OSLO]),
    "qwen2.5 small, fenced": (f"```json\n{BARE}\n```", [OSLO]),
    "qwen2.5 small, code": (
        "To do this:\n\n```python\nprint(1)\n```",
        ["To do this:", ("python", {"code": "print(1)"})],
    ),
    "after code within a line": (f"```x``` is it:\n{BARE}", ["```x``` is it:", OSLO]),
    "llama 3.1": ('{"name": "get_weather", "parameters": {"city": "Oslo"}}', [OSLO]),
    "llama 3.1, two": (
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}; '
        '{"name": "get_weather", "parameters": {"city": "Rome"}}',
        [OSLO, ROME],
    ),
    "llama 3.1, code": ("<|python_tag|>import os\nprint(1)", [("python", {"code": "import os\nprint(1)"})]),
    "llama 3.2, tag and json": (
        '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Oslo"}}',
        [OSLO],
    ),
    "mistral": ('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "VvvODy9mT"}]', [OSLO]),
    "mistral, two": (
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}}, '
        '{"name": "get_weather", "arguments": {"city": "Rome"}}]',
        [OSLO, ROME],
    ),
    "mistral small 3": (
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
        [OSLO, ROME],
    ),
    "openai's own form": (
        '[{"id": "c1", "type": "function", '
        '"function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}}]',
        [OSLO],
    ),
    "a tool nobody offers": ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', [("fly", {})]),
}
TEXTS = {
    "prose": "Oslo is cold < Rome is warm.\n  Indented.\n\n",
    "data": 'Here:\n{"answer": 5}\n[1, 2]\n{"name": "Bob", "age": 3}\n',
    "markdown": "[link](https://example.org)\n`{x}`\n* <b>",
    "an example in another language": f"```js\n{BARE}\n```\nSo.",
    "a tag that never comes": "The tag <tool_ca is cut, and so is `",
    "mistral's tag in words": "[TOOL_CALLS]!! is a tag.",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_calls_are_found_in_every_form_that_models_write(name: str) -> None:
    text, expected = ANSWERS[name]

    assert read([text]) == expected


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_only_looks_like_a_call_stays_as_it_is(name: str) -> None:
    assert read([TEXTS[name]]) == [TEXTS[name]]


@pytest.mark.parametrize("name", [*ANSWERS, *TEXTS])
@pytest.mark.parametrize("cut", [False, True])
@settings(max_examples=10)
@given(data=st.data())
def test_any_split_of_an_answer_gives_the_same(name: str, cut: bool, data: st.DataObject) -> None:
    text = ANSWERS[name][0] if name in ANSWERS else TEXTS[name]
    pieces = split(text, data)

    assert read(pieces, cut=cut) == read([text], cut=cut)


FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "```", "```json\n", "```python\n"),
        *("{", "}", "[", "]", '"', "'", ":", ",", ";", "\n", " ", "\\", "<", "`"),
        *('"name"', '"arguments"', '"parameters": {}', BARE, "print(1)", "words", "é", "\x00"),
    ]
)


@given(fragments=st.lists(FRAGMENTS, max_size=14), cut=st.booleans(), data=st.data())
def test_fuzzed_answers_never_fail_and_never_depend_on_their_split(
    fragments: list[str], cut: bool, data: st.DataObject
) -> None:
    text = "".join(fragments)

    assert read(split(text, data), cut=cut) == read([text], cut=cut)


@given(st.text())
def test_text_without_brackets_tags_or_fences_is_given_out_unchanged(text: str) -> None:
    plain = text.translate(str.maketrans("", "", "{}[]<`"))

    assert read([plain]) == ([plain] if plain else [])


@given(st.lists(FRAGMENTS, max_size=14))
def test_when_no_tool_is_offered_everything_is_text(fragments: list[str]) -> None:
    text = "".join(fragments)

    assert read([text], tools=()) == ([text] if text else [])


@pytest.mark.parametrize("name", ANSWERS)
@settings(max_examples=10)
@given(data=st.data())
def test_half_a_call_is_never_shown_while_the_answer_goes_on(name: str, data: st.DataObject) -> None:
    text, expected = ANSWERS[name]
    parser = CallParser(TOOLS, fences=True)
    said = ""
    for piece in split(text, data):
        said += "".join(part.text for part in parser.push(piece) if isinstance(part, TextChunk))

        words = "".join(part for part in expected if isinstance(part, str))
        assert words.startswith(said)


@pytest.mark.parametrize(
    "name", [name for name, (_, parts) in ANSWERS.items() if sum(type(part) is tuple for part in parts) == 1]
)
def test_a_call_cut_by_its_last_characters_is_shown_and_not_made(name: str) -> None:
    text, _ = ANSWERS[name]
    half = text[: text.rindex("city") if "city" in text else len(text) - 8]

    parts = read([half], cut=True)

    assert "".join(str(part) for part in parts) == half


def test_text_is_given_out_as_soon_as_it_can_be_no_call() -> None:
    parser = CallParser(TOOLS)

    assert parser.push("Hello") == [TextChunk("Hello")]
    assert parser.push(' there\n{"a') == [TextChunk(" there")]
    assert "".join(part.text for part in parser.push('nswer": 5') if isinstance(part, TextChunk)) == '\n{"answer": 5'


def test_a_call_is_given_out_before_the_answer_ends() -> None:
    parser = CallParser(TOOLS)

    assert [type(part) for part in parser.push(BARE)] == [CallChunk]


def test_a_fenced_example_of_a_model_that_calls_natively_is_no_call() -> None:
    text = "Like so:\n```python\nprint(1)\n```\n"

    assert read([text], fences=False) == [text]
    assert read([text], tools=("get_weather",)) == [text]


def test_what_can_not_be_stored_goes_back_as_it_was_written() -> None:
    deep = "[" * 200 + "]" * 200
    call = f'<tool_call>{{"name": "python", "arguments": {{"code": {deep}}}}}</tool_call>'

    assert read([call])[0] == ("python", {"_raw": call.removeprefix("<tool_call>").removesuffix("</tool_call>")})
    assert read(['<tool_call>{"name": "python", "arguments": {"x": NaN}}</tool_call>']) == [
        ("python", {"_raw": '{"x": NaN}'})
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(st.text(), inner),
        max_leaves=4,
    )
)
def test_arguments_come_back_as_they_were_meant(value: Any) -> None:
    arguments = {"value": value}
    call = f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': arguments})}\n</tool_call>"

    expected = [("python", arguments)]
    assert read([call]) == expected


def split(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(set(data.draw(st.lists(st.integers(0, len(text)), max_size=12))))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize(
    "piece",
    [
        "{\n",
        '{"name": \n',
        '[{"name": "python", "arguments": {}},\n',
        "<tool_call>",
        "<tool_call>{",
        "```\n",
        "[TOOL_CALLS]",
    ],
)
def test_a_hostile_answer_takes_time_in_proportion_to_its_length(piece: str) -> None:
    """JSON without an end on every line was read to the end for each line: 80,000 characters took minutes."""

    def once(size: int) -> float:
        parser = CallParser(["python"], fences=True)
        began = time.process_time()
        parser.push(piece * (size // len(piece)))
        parser.finish()
        return time.process_time() - began

    def seconds(size: int) -> float:
        # The best of three: a garbage collection of a large test process costs more than what is measured.
        return min(once(size) for _ in range(3))

    assert seconds(80_000) < 10 * seconds(20_000) + 0.2


def test_a_tagged_call_is_found_behind_a_thousand_lines_that_look_like_calls() -> None:
    parser = CallParser(["python"])
    call = '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>'
    parts = [*parser.push("{ no call\n" * 3000 + call), *parser.finish()]
    assert [part.call.arguments for part in parts if isinstance(part, CallChunk)] == [{"code": "1"}]
    assert "".join(part.text for part in parts if isinstance(part, TextChunk)).count("{ no call") == 3000
