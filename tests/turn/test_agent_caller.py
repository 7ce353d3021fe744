"""Tests functions that the caller runs itself: a call ends the turn, and the next turn brings its result."""

from typing import Any

import pytest

from agent_kernel.core.events import AnswerLogprobs, CallReturned, EventBody, TurnFinished
from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.protocols import Sampling, ToolSpec
from agent_kernel.tools.base.caller_tools import AWAITED
from agent_kernel.turn.agent import TurnRequest
from tests.scripted import python
from tests.turns import Recorder, agent, stored

WEATHER = ToolSpec("weather", "Tells it.", {"type": "object"}, kind="function", where="caller", source="external")
ASK = {"name": "weather", "arguments": {"city": "Ulm"}}


def request(prompt: str = "go", **fields: Any) -> TurnRequest:
    return TurnRequest(prompt, functions=(WEATHER,), **fields)


def returned_call(heard: list[EventBody]) -> CallReturned:
    return next(body for body in heard if isinstance(body, CallReturned))


def last_event(heard: list[EventBody]) -> TurnFinished:
    assert isinstance(heard[-1], TurnFinished)
    return heard[-1]


async def test_a_call_of_the_callers_function_ends_the_turn_and_is_returned() -> None:
    it, store, _ = agent([{"text": "Let me ask.", "calls": [ASK]}, {"text": "never"}])
    heard: list[EventBody] = []
    result = await it.turn(request(), heard.append)
    call = returned_call(heard)
    assert (call.name, call.arguments, last_event(heard).finish) == ("weather", {"city": "Ulm"}, "calls")
    assert (result.state, result.text) == ("committed", "Let me ask.")
    kept = await stored(store)
    assert [(m.role, m.text) for m in kept] == [("user", "go"), ("assistant", "Let me ask."), ("tool", AWAITED)]
    assert [c.id for c in kept[1].calls] == [call.call]


@pytest.mark.parametrize("carries", [False, True], ids=["the result alone", "the whole conversation"])
async def test_the_next_turn_brings_the_result_in_the_place_of_the_call(carries: bool) -> None:
    it, store, engine = agent([{"calls": [ASK]}, {"text": "Sunny in Ulm."}])
    heard: list[EventBody] = []
    await it.turn(request(), heard.append)
    call = ToolCall(returned_call(heard).call, "weather", {"city": "Ulm"})
    brought = tool_result(call, "sunny", "success")
    messages = (user("go"), assistant("", [call]), brought) if carries else (brought,)
    result = await it.run(request("", messages=messages, history="replay" if carries else "append"))
    assert result.text == "Sunny in Ulm."
    told = [(m.role, m.text) for m in engine.requests[1].messages if m.role != "system"]
    assert told == [("user", "go"), ("assistant", ""), ("tool", "sunny")]
    assert [m.text for m in await stored(store)] == ["go", "", "sunny", "Sunny in Ulm."]


async def test_calls_of_the_server_beside_it_run_and_keep_their_results() -> None:
    tool = Recorder()
    it, _, engine = agent([{"text": "Both.", "calls": [python("a"), ASK]}, {"text": "done"}], [tool])
    heard: list[EventBody] = []
    await it.turn(request(), heard.append)
    call = ToolCall(returned_call(heard).call, "weather", {"city": "Ulm"})
    assert tool.ran == ["a"]
    messages = (user("go"), assistant("Both.", [call]), tool_result(call, "rain", "success"))
    await it.run(request("", messages=messages, history="replay"))
    told: list[Message] = [m for m in engine.requests[1].messages if m.role != "system"]
    assert [m.text for m in told if m.role == "tool"] == ["A", "rain"]


async def test_they_are_offered_where_no_tool_of_the_server_is() -> None:
    it, _, engine = agent([{"calls": [ASK]}], [Recorder()], max_tool_rounds=0)
    heard: list[EventBody] = []
    await it.turn(request(), heard.append)
    assert [spec.name for spec in engine.requests[0].tools] == ["weather"]
    assert last_event(heard).finish == "calls"


async def test_a_function_called_as_a_tool_of_the_server_is_refused() -> None:
    taken = ToolSpec("python", "Mine.", {"type": "object"}, kind="function", where="caller")
    it, _, engine = agent([{"text": "x"}], [Recorder()])
    result = await it.run(TurnRequest("go", functions=(taken,)))
    assert (result.state, result.error and result.error.code, engine.requests) == ("failed", "invalid_request", [])


async def test_a_result_that_never_comes_leaves_a_conversation_that_goes_on() -> None:
    it, _, engine = agent([{"calls": [ASK]}, {"text": "Fine."}])
    await it.run(request())
    assert (await it.run("never mind")).text == "Fine."
    assert [m.text for m in engine.requests[1].messages if m.role == "tool"] == [AWAITED]


async def test_the_end_says_why_the_answer_ended() -> None:
    for script, finish in (({"text": "a"}, "stop"), ({"text": "a", "finish": "length"}, "length")):
        it, _, _ = agent([script])
        heard: list[EventBody] = []
        await it.turn(TurnRequest("go"), heard.append)
        assert last_event(heard).finish == finish


async def test_log_probabilities_are_told_where_they_were_asked_for() -> None:
    it, _, _ = agent([{"text": "one two", "deltas": 2, "loop": True}])
    heard: list[EventBody] = []
    await it.turn(TurnRequest("go", sampling=Sampling(logprobs=True)), heard.append)
    told = [body for body in heard if isinstance(body, AnswerLogprobs)]
    assert ["".join(str(token["text"]) for token in body.tokens) for body in told] == ["one two"]
    heard.clear()
    await it.turn(TurnRequest("go"), heard.append)
    assert not [body for body in heard if isinstance(body, AnswerLogprobs)]


async def test_a_required_call_is_one_of_the_callers_functions_where_there_are_any() -> None:
    """A call of a tool of the server met it, and the caller got an answer in words."""
    tool = Recorder()
    it, _, engine = agent([{"calls": [python("a")]}, {"calls": [ASK]}], [tool])
    heard: list[EventBody] = []
    await it.turn(request(tool_choice="required"), heard.append)
    assert returned_call(heard).name == "weather"
    told = [(asked.tool_choice, [spec.name for spec in asked.tools]) for asked in engine.requests]
    assert told == [("required", ["weather"])] * 2


async def test_a_required_call_is_one_of_the_servers_tools_where_the_caller_has_none() -> None:
    it, _, engine = agent([{"calls": [python("a")]}, {"text": "done"}], [Recorder()])
    await it.run(TurnRequest("go", tool_choice="required"))
    assert [asked.tool_choice for asked in engine.requests] == ["required", "auto"]


@pytest.mark.parametrize("rounds", [0, 1, 16])
async def test_a_turn_ends_when_the_model_keeps_calling_a_tool_that_does_not_exist(rounds: int) -> None:
    it, _, engine = agent([{"calls": [{"name": "wether", "arguments": {}}]}] * 30, max_tool_rounds=rounds)
    result = await it.run(request())
    assert result.state == "failed"
    assert "keeps calling the tool 'wether', which the request does not offer" in str(result.error)
    assert len(engine.requests) <= 5


async def test_a_model_that_calls_a_tool_that_does_not_exist_can_still_answer() -> None:
    wrong = {"calls": [{"name": "wether", "arguments": {}}]}
    it, _, _ = agent([wrong, wrong, {"text": "I cannot look."}], max_tool_rounds=0)
    assert (await it.run(request())).text == "I cannot look."
