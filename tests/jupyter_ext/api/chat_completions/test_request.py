"""Tests how the body of chat/completions becomes a request, and that an error names its field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_kernel.core.errors import Unprocessable
from agent_kernel.core.protocols import OutputFormat, Sampling
from jupyter_ext.api.chat_completions.request import MAX_SEED, ChatBody, choices_of
from jupyter_ext.api.dialects.openai_validation import describe_mistake
from jupyter_ext.turns.dialect_request import SubmittedFile
from tests.jupyter_ext.api.chat_completions.bodies import one, refusal_of, turn_request
from tests.narrowing import not_none

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}
TIME = {"type": "function", "function": {"name": "time"}}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}


# ---------------------------------------------------------------------------------------------------- which tools


def test_a_plain_model_has_no_tools_of_the_server() -> None:
    assert turn_request(model="default").server_tools == ()


def test_the_agent_has_all_of_them() -> None:
    assert turn_request(model="agent/default").server_tools is None


def test_a_body_without_a_model_goes_to_the_servers_own() -> None:
    assert turn_request().name == ""


@pytest.mark.parametrize(
    ("body", "groups"),
    [
        ({"tools": [CODE]}, ("python",)),
        ({"enable_shell": True}, ("shell",)),
        ({"enable_shell": False}, ()),
        ({"web_search_options": {}}, ("web",)),
        ({"max_tool_rounds": 3}, ("mcp", "functions", "dispatch")),
        ({"max_tool_rounds": 0}, ()),
        ({"tools": [CODE, WEATHER], "enable_shell": True}, ("python", "shell")),
    ],
)
def test_a_plain_model_gets_the_tools_that_the_request_names(body: dict[str, Any], groups: tuple[str, ...]) -> None:
    assert turn_request(**body).server_tools == groups


def test_files_that_come_with_a_message_can_be_read() -> None:
    given = turn_request(
        messages=one({"type": "file", "file": {"file_id": "file_1"}}, {"type": "text", "text": "read"})
    )
    assert (given.server_tools, given.files) == (("files",), (SubmittedFile(id="file_1"),))


def test_functions_are_the_callers() -> None:
    (weather, time) = turn_request(tools=[WEATHER, TIME]).request.functions
    assert (weather.name, weather.description, weather.schema, weather.where) == (
        "weather",
        "Tells it.",
        SCHEMA,
        "caller",
    )
    assert time.schema == {"type": "object", "properties": {}}


def test_two_functions_of_one_name_are_refused() -> None:
    assert refusal_of(tools=[WEATHER, WEATHER]) == ("tools has two functions called weather", "tools")


@pytest.mark.parametrize(
    "container",
    ["cntr_1", {"type": "auto", "file_ids": ["f"]}, {"type": "auto", "memory_limit": "4g"}, {"type": "other"}, None],
)
def test_code_interpreter_has_the_container_auto_only(container: Any) -> None:
    assert refusal_of(tools=[{"type": "code_interpreter", "container": container}])[1] == "tools[0].container"


def test_an_empty_list_of_files_of_a_container_is_as_good_as_none() -> None:
    assert turn_request(tools=[{"type": "code_interpreter", "container": {"type": "auto", "file_ids": []}}]).groups == (
        "python",
    )


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_preview", "shell", "local_shell", "custom", "namespace", "x"]
)
def test_other_types_of_tools_are_refused(kind: str) -> None:
    assert refusal_of(tools=[{"type": kind, "name": "n"}])[1] == "tools[0]"


@pytest.mark.parametrize(
    "parameters",
    [{"type": "array"}, {"type": 3}, {"properties": 1}, {"type": "object", "properties": {"a": {"enum": "x"}}}, []],
)
def test_parameters_that_are_no_schema_of_an_object_are_refused(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    assert refusal_of(tools=[tool])[1] == "tools[0].function.parameters"


def test_a_schema_that_is_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"properties": {"a": deep}}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    assert "at most 64 levels" in refusal_of(tools=[tool])[0]


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b", "ä", "a\n"])
def test_names_of_functions_are_those_that_models_can_write(name: str) -> None:
    assert refusal_of(tools=[{"type": "function", "function": {"name": name}}])[1] == "tools[0].function.name"


# ---------------------------------------------------------------------------------------------------- tool_choice


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_choice_in_a_word_is_taken(choice: str) -> None:
    assert turn_request(tools=[WEATHER], tool_choice=choice).request.tool_choice == choice


def test_a_function_can_be_chosen() -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    assert turn_request(tools=[WEATHER, TIME], tool_choice=choice).request.tool_choice == "weather"


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [WEATHER]},
        {"tools": [CODE]},
        {"enable_shell": True},
        {"web_search_options": {}},
        {"max_tool_rounds": 2},
        {"model": "agent/default"},
    ],
)
def test_a_call_can_be_required_where_there_are_tools(body: dict[str, Any]) -> None:
    assert turn_request(tool_choice="required", **body).request.tool_choice == "required"


@pytest.mark.parametrize("body", [{}, {"tools": []}, {"enable_shell": False}])
def test_a_call_can_not_be_required_where_there_are_none(body: dict[str, Any]) -> None:
    assert refusal_of(tool_choice="required", **body)[1] == "tool_choice"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "other"}},
        {"type": "function", "function": {}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TIME, WEATHER]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CODE]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": [WEATHER]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": "weather"}},
        {"type": "allowed_tools"},
        {"type": "code_interpreter"},
        {"type": "web_search"},
        {"type": "custom", "custom": {"name": "weather"}},
        {"type": ["function"]},
        "weather",
        7,
    ],
)
def test_a_choice_of_what_is_not_there_is_refused(choice: Any) -> None:
    assert refusal_of(tools=[WEATHER], tool_choice=choice)[1] == "tool_choice"


def test_only_allowed_functions_are_offered() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}}
    body: dict[str, Any] = {"model": "agent/default", "tools": [WEATHER, TIME, CODE], "max_tool_rounds": 3}
    made = turn_request(**body, enable_shell=True, tool_choice=allowed)
    assert [spec.name for spec in made.request.functions] == ["weather"]
    assert (made.request.tool_choice, made.server_tools) == ("required", ())


def test_a_tool_of_the_server_can_be_allowed_alone() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "code_interpreter"}]}}
    made = turn_request(tools=[WEATHER, CODE], tool_choice=allowed)
    assert (made.request.functions, made.server_tools) == ((), ("python",))


def test_parallel_calls_can_be_declined() -> None:
    assert turn_request(tools=[WEATHER], parallel_tool_calls=False).request.parallel_calls is False
    assert turn_request(tools=[WEATHER], parallel_tool_calls=None).request.parallel_calls is True


# ---------------------------------------------------------------------------------------------------- sampling


def test_sampling_is_taken_over() -> None:
    body = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": "END", "max_tokens": 9, "logprobs": True}
    more = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}
    assert turn_request(**body, **more).request.sampling == Sampling(0.5, 0.9, 5, 0.1, 1.1, 7, 9, ("END",), True)


def test_the_newer_name_of_the_limit_counts() -> None:
    assert turn_request(max_tokens=9, max_completion_tokens=5).request.sampling.max_tokens == 5


def test_nulls_are_as_good_as_nothing() -> None:
    optional = [name for name in ChatBody.model_fields if name not in ("messages", "model")]
    assert turn_request(**dict.fromkeys(optional)).request == turn_request().request


def test_no_share_of_the_best_tokens_is_the_best_one() -> None:
    sampling = turn_request(top_p=0).request.sampling
    assert (sampling.top_p, sampling.top_k) == (None, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 9),
        ("n", 0),
        ("temperature", -1),
        ("temperature", float("nan")),
        ("top_p", 2),
        ("max_tokens", 0),
        ("max_completion_tokens", -1),
        ("top_logprobs", 5),
        ("seed", 1 << 70),
        ("stop", ["a"] * 17),
        ("stop", [1]),
        ("modalities", ["text", "audio"]),
        ("functions", [{"name": "f"}]),
        ("session_id", ""),
        ("max_tool_rounds", -1),
        ("agent_permission", "always"),
        ("code_execution_permission", 1),
        ("files", [{"name": ""}]),
        ("web_search_options", {"filters": {"allowed_domains": ["a.org"] * 101}}),
        ("web_search_options", {"search_context_size": "huge"}),
    ],
)
def test_a_field_out_of_its_bounds_is_refused_by_its_name(field: str, value: Any) -> None:
    words, named = refusal_of(**{field: value})
    assert not_none(named).partition("[")[0].partition(".")[0] == field
    assert len(words) < 500


# ------------------------------------------------------------------------------------------------ several choices


def test_the_first_of_several_choices_is_the_request_itself_and_the_others_are_sampled() -> None:
    request = turn_request()
    first, *others = choices_of(request, 3)
    assert first == request
    assert [choice.request.sampling.temperature for choice in others] == [1.0, 1.0]
    cold = choices_of(turn_request(temperature=0.0), 2)
    assert [choice.request.sampling.temperature for choice in cold] == [0.0, 0.0]


@pytest.mark.parametrize("seed", [None, 0, -MAX_SEED, MAX_SEED - 1])
def test_the_seeds_of_choices_differ(seed: int | None) -> None:
    seeds = [choice.request.sampling.seed for choice in choices_of(turn_request(seed=seed), 8)]
    assert seeds[0] == seed
    assert len(set(seeds)) == (1 if seed is None else 8)
    assert all(one is None or -MAX_SEED <= one < MAX_SEED for one in seeds)


def test_fields_of_other_versions_are_ignored() -> None:
    others = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "prediction": {"type": "content", "content": "x"},
        "safety_identifier": "s",
        "from_the_future": {"a": 1},
    }
    assert turn_request(**others) == turn_request()


def test_what_changes_the_answer_is_taken_over() -> None:
    """It was ignored in silence: engines do it, or refuse it by its name."""
    fields = {"reasoning_effort": "low", "presence_penalty": 0.5, "frequency_penalty": -2, "logit_bias": {"7": -100}}
    sampling = turn_request(**fields, logprobs=True, top_logprobs=3).request.sampling
    assert (sampling.reasoning_effort, sampling.presence_penalty, sampling.frequency_penalty) == ("low", 0.5, -2)
    assert (sampling.logit_bias, sampling.top_logprobs) == (((7, -100),), 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("presence_penalty", 3),
        ("frequency_penalty", -2.5),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {"1": 101}),
        ("reasoning_effort", "much effort"),
        ("guided_regex", ""),
        ("guided_choice", []),
        ("guided_json", "no json"),
        ("structured_outputs", {"structural_tag": "{}"}),
        ("structured_outputs", {"regex": "a", "choice": ["a"]}),
        ("grammar", {"type": "llguidance", "value": {}}),
        ("grammar", {"type": "regex", "value": {}}),
        ("grammar", "root ::= x"),
    ],
)
def test_what_changes_the_answer_is_refused_by_its_name_where_it_makes_no_sense(field: str, value: Any) -> None:
    words, named = refusal_of(**{field: value})
    assert not_none(named).partition("[")[0].partition(".")[0] in (field, "structured_outputs")
    assert field in words


SHORT = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"guided_regex": "a+"}, OutputFormat("regex", regex="a+")),
        ({"guided_choice": ["a", "b"]}, OutputFormat("choice", choice=("a", "b"))),
        ({"guided_json": SHORT}, OutputFormat("json_schema", SHORT)),
        ({"guided_json": json.dumps(SHORT)}, OutputFormat("json_schema", SHORT)),
        ({"guided_grammar": "root ::= x"}, OutputFormat("grammar", grammar="root ::= x")),
        ({"structured_outputs": {"regex": "a+"}}, OutputFormat("regex", regex="a+")),
        ({"structured_outputs": {"json": SHORT}}, OutputFormat("json_schema", SHORT)),
        ({"structured_outputs": {"json_object": True}}, OutputFormat("json_object")),
        ({"grammar": {"type": "regex", "value": "a+"}}, OutputFormat("regex", regex="a+")),
        ({"grammar": {"type": "json_schema", "value": SHORT}}, OutputFormat("json_schema", SHORT)),
        ({"grammar": {"type": "lark", "value": "start: x"}}, OutputFormat("grammar", grammar="start: x")),
        ({"grammar": {"type": "none"}}, None),
    ],
)
def test_what_binds_an_answer_at_vllm_and_mistral_rs_binds_it_here(
    fields: dict[str, Any], output: OutputFormat | None
) -> None:
    assert turn_request(**fields).request.output == output


# ---------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat("json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}},
            OutputFormat("json_schema", SCHEMA, name="place"),
        ),
        ({"type": "json_schema", "json_schema": {"name": "any"}}, OutputFormat("json_object", name="any")),
    ],
)
def test_the_form_of_the_answer_is_taken_over(form: dict[str, Any], output: OutputFormat | None) -> None:
    assert turn_request(response_format=form).request.output == output


@pytest.mark.parametrize(
    "form",
    [
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}},
        "json_object",
    ],
)
def test_a_form_that_is_not_known_is_refused(form: Any) -> None:
    assert str(refusal_of(response_format=form)[1]).startswith("response_format")


def test_files_are_asked_for_by_name() -> None:
    files = [{"name": "a.csv", "format": "csv", "description": "the table"}, {"name": "b.png"}]
    wanted = turn_request(model="agent/default", files=files).request.outputs
    assert [(one.name, one.format, one.description) for one in wanted] == [
        ("a.csv", "csv", "the table"),
        ("b.png", "", ""),
    ]


@pytest.mark.parametrize("body", [{}, {"tools": [WEATHER]}, {"model": "agent/default", "max_tool_rounds": 0}])
def test_files_that_no_tool_could_make_are_not_promised(body: dict[str, Any]) -> None:
    with pytest.raises(Unprocessable):
        turn_request(files=[{"name": "a.csv"}], **body)


@pytest.mark.parametrize(
    ("body", "permission"),
    [
        ({}, "auto"),
        ({"agent_permission": "deny", "code_execution_permission": "ask"}, "deny"),
        ({"code_execution_permission": "ask"}, "ask"),
    ],
)
def test_a_request_can_be_stricter(body: dict[str, Any], permission: str) -> None:
    assert turn_request(**body).request.permission == permission


WORD = st.sampled_from(list(ChatBody.model_fields)) | st.text(max_size=5)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["auto", "function"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORD | st.sampled_from(["type", "role", "content"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(WORD, ANYTHING, max_size=6))
def test_whatever_comes_is_a_request_or_a_mistake_in_words(body: dict[str, Any]) -> None:
    said = ""
    try:
        said = str(ChatBody.model_validate_json(json.dumps(body)).to_turn({}).request.messages)
    except ValidationError as error:
        said = describe_mistake(error, body, ChatBody)[0]
    except (ValueError, Unprocessable) as error:
        said = str(error)
    assert said
