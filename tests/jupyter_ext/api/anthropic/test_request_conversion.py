"""Tests the options of Anthropic's requests: tools, thinking, formats, and the fields of mistral.rs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import Sampling
from jupyter_ext.api.anthropic import handler
from jupyter_ext.api.anthropic.conversation import conversation
from jupyter_ext.api.anthropic.request import MessagesBody
from jupyter_ext.api.dialects.prompt_tokens import estimate_tokens
from jupyter_ext.api.http.json_body import validation_message
from jupyter_ext.turns.dialect_request import DialectRequest

WEATHER = {
    "name": "weather",
    "description": "Tells it.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}


def body(**more: Any) -> MessagesBody:
    given = {"model": "default", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **more}
    return MessagesBody.model_validate_json(json.dumps(given), strict=True)


def turn_request(**more: Any) -> DialectRequest:
    read = body(**more)
    return handler.build_turn(read, conversation(read, {}))


def test_a_plain_request_turns_no_tool_of_the_server_on() -> None:
    plain = turn_request()
    assert (plain.server_tools, plain.request.functions, plain.request.web, plain.session) == ((), (), None, "")


def test_tools_of_the_client_are_functions_that_end_the_turn() -> None:
    functions = turn_request(tools=[WEATHER]).request.functions
    assert [(one.name, one.where, one.description) for one in functions] == [("weather", "caller", "Tells it.")]
    assert functions[0].schema == WEATHER["input_schema"]


def test_a_forced_tool_is_the_choice() -> None:
    forced = turn_request(tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"})
    assert forced.request.tool_choice == "weather"


def test_server_tools_turn_on_the_web_and_python_and_a_forced_one_is_auto() -> None:
    both = turn_request(tools=[SEARCH, CODE], tool_choice={"type": "tool", "name": "web_search"})
    assert set(both.server_tools or ()) == {"web", "python"}
    assert (both.request.web, both.request.tool_choice, both.request.functions) == ({"filters": {}}, "auto", ())


def test_bare_names_without_a_schema_are_server_tools() -> None:
    both = turn_request(tools=[{"name": "web_search"}, {"name": "code_execution"}])
    assert set(both.server_tools or ()) == {"web", "python"}
    assert turn_request(tools=[WEATHER | {"name": "web_search"}]).server_tools == ()


def test_domains_and_a_place_are_options_of_the_search() -> None:
    place = {"type": "approximate", "city": "Ulm", "country": "DE"}
    web = turn_request(
        tools=[SEARCH | {"allowed_domains": ["a.org"], "user_location": place, "max_uses": 5}]
    ).request.web
    assert web == {"filters": {"allowed_domains": ["a.org"]}, "user_location": place}


def test_web_search_options_are_enough_and_win() -> None:
    assert turn_request(web_search_options={"search_context_size": "low"}).server_tools == ("web",)
    both = turn_request(tools=[SEARCH], web_search_options={"filters": {"allowed_domains": ["b.org"]}})
    assert both.request.web == {"filters": {"allowed_domains": ["b.org"]}}


@pytest.mark.parametrize(
    ("kind", "groups"), [("web_search_20250305", {"web"}), ("web_search_20260318", {"web", "python"})]
)
def test_newer_searches_run_code_too(kind: str, groups: set[str]) -> None:
    assert set(turn_request(tools=[SEARCH | {"type": kind}]).server_tools or ()) == groups


def test_no_choice_at_all_clears_tools_search_shell_and_skills() -> None:
    skills = {"skills": [{"type": "custom", "skill_id": "skill_1"}]}
    none = turn_request(tools=[WEATHER, SEARCH, CODE], tool_choice={"type": "none"}, container=skills)
    request = none.request
    assert (none.server_tools, request.functions, request.web, request.skills) == ((), (), None, ())
    assert turn_request(model="agent/default", tool_choice={"type": "none"}).request.max_tool_rounds == 0


@pytest.mark.parametrize("more", [{"tools": [WEATHER]}, {"tools": [CODE]}, {"model": "agent/default"}])
def test_any_makes_the_model_call_something(more: Any) -> None:
    assert turn_request(tool_choice={"type": "any"}, **more).request.tool_choice == "required"


def test_calls_one_by_one() -> None:
    one_by_one = {"type": "auto", "disable_parallel_tool_use": True}
    assert not turn_request(tools=[WEATHER], tool_choice=one_by_one).request.parallel_calls
    assert turn_request(tools=[WEATHER]).request.parallel_calls


def test_custom_skills_turn_on_the_shell_and_are_named_with_their_version() -> None:
    skills = [
        {"type": "custom", "skill_id": "skill_1", "version": "latest"},
        {"type": "custom", "skill_id": "skill_2", "version": "2"},
        {"type": "custom", "skill_id": "skill_3", "version": "skill_3_v4"},
    ]
    with_skills = turn_request(container={"skills": skills})
    assert set(with_skills.server_tools or ()) == {"skills", "shell"}
    assert with_skills.request.skills == ("skill_1", "skill_2@2", "skill_3@4")


def test_anthropics_own_skills_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="'pptx' is one of Anthropic's"):
        turn_request(container={"skills": [{"type": "anthropic", "skill_id": "pptx"}]})


def test_tools_that_claude_knows_by_heart_are_the_clients_with_their_schema() -> None:
    kinds = {
        "bash_20250124": "bash",
        "text_editor_20250728": "str_replace_based_edit_tool",
        "memory_20250818": "memory",
    }
    functions = turn_request(tools=[{"type": kind, "name": name} for kind, name in kinds.items()]).request.functions
    assert [one.name for one in functions] == list(kinds.values())
    assert all(one.where == "caller" and one.schema["properties"]["command"] for one in functions)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tools": [{"name": "weather"}]}, "has no input_schema"),
        ({"tools": [{"name": "w", "input_schema": {"type": "string"}}]}, "must have the type object"),
        ({"tools": [WEATHER, WEATHER]}, "Two tools have the same name, 'weather'"),
        ({"tools": [{"type": "computer_20250124", "name": "computer"}]}, "type 'computer_20250124'"),
        ({"tools": [WEATHER | {"allowed_callers": ["code_execution_20250825"]}]}, "Code cannot call 'weather'"),
        ({"tools": [SEARCH | {"allowed_domains": ["a"], "blocked_domains": ["b"]}]}, "not both"),
        ({"tool_choice": {"type": "any"}}, "has no tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "not one of the tools"),
        ({"files": [{"name": "a.csv"}]}, "no server tools"),
        ({"files": [{"name": "a.csv"}], "tools": [CODE], "tool_choice": {"type": "none"}}, "no server tools"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(more: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        turn_request(**more)


def test_a_null_is_a_field_that_is_not_there() -> None:
    names = ("stream", "stop_sequences", "system", "temperature", "top_k", "top_p", "thinking", "container")
    own = ("files", "enable_code_execution", "session_id", "web_search_options", "max_tool_rounds")
    choice = {"type": "any", "name": None, "disable_parallel_tool_use": None}
    given = turn_request(tools=[WEATHER], tool_choice=choice, **dict.fromkeys((*names, *own)))
    assert given == turn_request(tools=[WEATHER], tool_choice={"type": "any"})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens must be at least 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "budget_tokens must be at least 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "max_tokens must be greater"),
        (
            {
                "max_tokens": 4000,
                "tools": [WEATHER],
                "tool_choice": {"type": "any"},
                "thinking": {"type": "enabled", "budget_tokens": 2000},
            },
            "thinking cannot be enabled",
        ),
        ({"agent_permission": "ask"}, "needs stream: true"),
        ({"agent_permission": "deny", "code_execution_permission": "auto"}, "two names of one option"),
        ({"session_id": "a", "container": "b"}, "name different sessions"),
        ({"mcp_servers": [{"url": "https://a.org"}]}, "can only be set in the configuration"),
        ({"stop_sequences": [" "]}, "white space only"),
        ({"tool_choice": {"type": "tool"}}, "must have the name of a tool"),
        ({"messages": []}, "at least one message"),
        ({"web_search_options": {"search_context_size": "huge"}}, "search_context_size"),
    ],
)
def test_bodies_that_contradict_themselves_are_refused_in_words(more: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        body(**more)


def test_the_message_of_a_contradiction_is_a_plain_sentence() -> None:
    with pytest.raises(ValidationError) as raised:
        body(thinking={"type": "enabled", "budget_tokens": 1024})
    assert validation_message(raised.value) == "max_tokens must be greater than thinking.budget_tokens"


def test_max_tokens_is_required() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        MessagesBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "hi"}]})


def test_sampling_is_taken_over() -> None:
    given = turn_request(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END"]).request.sampling
    assert given == Sampling(temperature=0.5, top_p=0.9, top_k=40, max_tokens=100, stop=("END",))


def test_a_top_p_of_0_is_the_likeliest_token_and_a_top_k_of_0_no_limit() -> None:
    assert (turn_request(top_p=0).request.sampling.top_k, turn_request(top_p=0).request.sampling.top_p) == (1, None)
    assert turn_request(top_k=0).request.sampling.top_k is None


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        (None, "shown"),
        ({"type": "adaptive"}, "shown"),
        ({"type": "adaptive", "display": "omitted"}, "omitted"),
        ({"type": "enabled", "budget_tokens": 1024}, "shown"),
        ({"type": "disabled"}, "hidden"),
    ],
)
def test_how_thinking_is_shown(thinking: Any, shown: str) -> None:
    assert handler.thinking_options(body(thinking=thinking, max_tokens=2000)) == shown


@pytest.mark.parametrize("key", ["output_config", "output_format"])
def test_a_schema_binds_the_answer(key: str) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    output = turn_request(**{key: {"format": form} if key == "output_config" else form}).request.output
    assert output is not None
    assert (output.kind, output.json_schema) == ("json_schema", {"type": "object"})


def test_fields_of_mistral_rs() -> None:
    given = turn_request(
        session_id="s1",
        max_tool_rounds=3,
        enable_code_execution=True,
        code_execution_permission="deny",
        files=[{"name": "a.csv", "format": "csv"}],
    )
    assert (given.session, given.request.max_tool_rounds, given.request.permission) == ("s1", 3, "deny")
    assert given.server_tools == ("python", "mcp", "functions", "dispatch")
    assert [one.name for one in given.request.outputs] == ["a.csv"]


@pytest.mark.parametrize("container", ["s1", {"id": "s1"}])
def test_a_container_is_a_session(container: Any) -> None:
    assert turn_request(container=container).session == "s1"


def test_a_file_that_is_no_text_turns_on_the_tools_that_read_files() -> None:
    document = {"type": "document", "source": {"type": "file", "file_id": "file-1"}}
    given = turn_request(messages=[{"role": "user", "content": [document, {"type": "text", "text": "?"}]}])
    assert given.server_tools == ("files",)


def test_words_for_others_say_nothing_here() -> None:
    ignored = {"metadata": {"user_id": "u"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}}
    assert turn_request(**ignored, output_config={"effort": "low"}, speed="fast") == turn_request()


def test_an_estimate_of_tokens_grows_with_all_that_is_sent_and_says_what_it_is() -> None:
    def count(**more: Any) -> int:
        read = body(**more)
        told = estimate_tokens(
            conversation(read, {}).messages, handler.build_turn(read, conversation(read, {})).request.functions
        )
        assert told["estimated"] is True
        tokens: int = told["input_tokens"]
        return tokens

    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eHg="}}
    assert 0 < count() < count(system="Be brief.") < count(system="Be brief.", tools=[WEATHER])
    assert count(messages=[{"role": "user", "content": [picture]}]) > 1_000
