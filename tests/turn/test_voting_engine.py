"""Tests several programs for one question: which one the turn runs, what that costs, and when only one is sampled."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.core.events import EventBody, ModelLoading, Notice, TurnFinished
from agent_kernel.core.messages import Status
from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.core.protocols import Chunk, EngineInfo, EngineRequest, ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.settings import Effort
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn import voting_engine
from agent_kernel.turn.agent import Agent, TurnRequest
from agent_kernel.turn.voting_engine import ROUNDS
from tests.scripted import python
from tests.turns import KEY, SCHEMA, stored

Script = Sequence[Mapping[str, Any]]
SAMPLES = ROUNDS["thorough"][0]
"""Number of samples in the first round of a thorough turn."""
AFTER_FAILURE = ROUNDS["auto"][0]


class Copies:
    """Runs Python in a namespace, and trials of programs in copies of it."""

    spec = ToolSpec("python", "Runs code.", SCHEMA, kind="python.draft", where="draft")

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self.ran: list[str] = []
        self.tried: list[list[str]] = []
        self.names: list[str] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.ran.append(arguments["code"])
        status, text = execute(arguments["code"], self.namespace)
        return ToolOutput(text, status)

    async def try_programs(
        self, programs: Sequence[str], names: Sequence[str], context: ToolContext
    ) -> list[ProgramOutcome]:
        self.tried.append(list(programs))
        self.names = list(names)
        return [ProgramOutcome(*execute(program, dict(self.namespace))) for program in programs]


def execute(code: str, namespace: dict[str, Any]) -> tuple[Status, str]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
    except Exception as error:  # noqa: BLE001  the program of a test may raise anything
        last = code.splitlines()[-1]
        return "error", f"Traceback:\n  line 1, in <module>\n    {last}\n{type(error).__name__}: {error}"
    return "success", printed.getvalue() or "(no output)"


def rounds(*codes: str, text: str = "Done.") -> Script:
    return [*({"calls": [python(code)]} for code in codes), {"text": text}]


async def ask(
    script: Script, effort: Effort | None = None, *, batches: bool = True, gate: Gate | None = None, prompt: str = "Go."
) -> tuple[Copies, list[EventBody], ScriptedEngine]:
    tool, bodies = Copies(), list[EventBody]()
    engine = ScriptedEngine(script, batches=batches)
    store = MemoryStore()
    one = Agent(store, engine, KEY, [tool], gate=gate or Gate(Approvals(), answers=frozenset("*")))
    assert (await one.turn(TurnRequest(prompt, effort=effort or ""), bodies.append)).error is None
    called = [call.arguments["code"] for message in await stored(store) for call in message.calls]
    assert called == tool.ran
    return tool, bodies, engine


def notices(bodies: Sequence[EventBody]) -> list[str]:
    return [body.line for body in bodies if isinstance(body, Notice)]


async def test_the_program_that_most_agree_with_runs_and_is_stored() -> None:
    samples = ["print(9)", "print(9.0)", "print(8)", "print(9)", "print(7)", "print(9)", "print(9)"]
    tool, bodies, _ = await ask(rounds("print(7)", *samples), "thorough")
    assert tool.ran == ["print(9)"]
    assert notices(bodies) == ["5 of 8 programs that were tried have this result. 2 gave another result: 7"]


async def test_more_programs_are_sampled_while_no_more_than_half_of_them_agree() -> None:
    first, second = ["print(9)", "print(8)", "1 / 0"], ["print(9)", "print(6)", "print(9)", "print(9)"]
    tool, bodies, engine = await ask(rounds("print(7)", *first, *second), prompt="Answer in the form @n[count].")
    assert tool.ran == ["print(9)"]
    assert tool.tried == [["print(7)", "print(9)", "print(8)", "1 / 0"], ["print(6)"]]
    assert notices(bodies) == ["4 of 8 programs that were tried have this result."]
    seeds = [request.sampling.seed for request in engine.requests if request.sampling.seed]
    assert seeds == list(range(1, 8))


async def test_the_progress_says_what_is_written_and_tried() -> None:
    first, second = ["print(9)", "print(8)", "1 / 0"], ["print(9)", "print(6)", "print(9)", "print(9)"]
    _, bodies, _ = await ask(rounds("print(7)", *first, *second), prompt="Answer in the form @n[count].")
    stages = [body.stage for body in bodies if isinstance(body, ModelLoading)]
    assert list(dict.fromkeys(stages)) == [
        "writing 4 programs",
        "trying programs 1 to 4 of 4 in a draft",
        "writing 8 programs",
        "trying program 5 of 5 in a draft",
    ]


async def test_a_majority_of_the_first_programs_ends_the_sampling() -> None:
    script = rounds("print(7)", "print(7)", "print(8)", "print(7)")
    tool, bodies, engine = await ask(script, prompt="Answer in the form @n[count].")
    assert (tool.ran, len(engine.requests)) == (["print(7)"], 5)
    assert notices(bodies) == ["3 of 4 programs that were tried have this result."]


async def test_a_sample_that_could_not_alter_the_result_of_the_vote_is_not_waited_for() -> None:
    endless = {"text": "Without end", "delay": 60.0}
    script: Script = [*rounds("print(7)", "print(7)", "print(7)")[:-1], endless, {"text": "Done."}]
    before = asyncio.all_tasks()
    async with asyncio.timeout(10):
        tool, bodies, _ = await ask(script, prompt="Answer in the form @n[count].")
    assert tool.ran == ["print(7)"]
    assert notices(bodies) == ["All 3 programs that were tried have this result."]
    assert asyncio.all_tasks() == before


async def test_programs_of_one_result_are_said_to_agree() -> None:
    _, bodies, _ = await ask(rounds("print(7)", *["print(7)"] * SAMPLES), "thorough")
    assert notices(bodies) == [f"All {SAMPLES + 1} programs that were tried have this result."]


async def test_equal_programs_are_tried_once() -> None:
    tool, _, _ = await ask(rounds("print(7)", *["print(7)", "print(8)"] * 3, "print(7)"), "thorough")
    assert tool.tried == [["print(7)", "print(8)"]]


async def test_with_quick_effort_one_program_is_sampled() -> None:
    tool, _, engine = await ask(rounds("1 / 0", "print(7)"), "quick")
    assert (tool.ran, tool.tried, len(engine.requests)) == (["1 / 0", "print(7)"], [], 3)


async def test_by_default_several_are_sampled_only_after_a_program_failed() -> None:
    tool, _, engine = await ask(rounds("print(7)"))
    assert (tool.ran, tool.tried, len(engine.requests)) == (["print(7)"], [], 2)
    tool, _, engine = await ask(rounds("1 / 0", "print(x)", *["print(7)"] * AFTER_FAILURE))
    assert tool.ran == ["1 / 0", "print(7)"]


async def test_a_program_that_failed_is_not_tried_again() -> None:
    tool, _, _ = await ask(rounds("1 / 0", "print(7)", "1 / 0", *["print(8)"] * 2))
    assert tool.tried == [["print(7)", "print(8)"]]
    assert tool.ran == ["1 / 0", "print(8)"]


async def test_samples_do_not_see_the_failed_program() -> None:
    _, _, engine = await ask(rounds("1 / 0", "print(7)", *["print(7)"] * AFTER_FAILURE))
    again, *samples = engine.requests[1 : 2 + AFTER_FAILURE]
    assert [message.role for message in again.messages][-2:] == ["assistant", "tool"]
    for number, sample in enumerate(samples, 1):
        assert sample.messages[-1].role == "user"
        assert (sample.sampling.seed, sample.sampling.temperature, sample.tool_choice) == (number, 0.7, "python")


async def test_an_engine_that_decodes_one_request_at_a_time_is_asked_once_unless_the_request_wants_more() -> None:
    tool, _, _ = await ask(rounds("1 / 0", "print(7)"), batches=False)
    assert tool.tried == []
    tool, _, _ = await ask(rounds("print(7)", *["print(8)"] * SAMPLES), "thorough", batches=False)
    assert tool.ran == ["print(8)"]


async def test_if_every_program_fails_the_likeliest_one_runs() -> None:
    tool, bodies, _ = await ask(rounds("1 / 0", "[][1]", *["{}[1]"] * sum(ROUNDS["auto"])))
    assert tool.ran == ["1 / 0", "[][1]"]
    assert notices(bodies) == []


async def test_a_text_is_no_program_and_passes_as_it_comes() -> None:
    tool, bodies, engine = await ask([{"text": "Hello there.", "deltas": 3}], "thorough")
    assert (tool.tried, len(engine.requests)) == ([], 1)
    assert sum(body.type == "text.delta" for body in bodies) == 3


async def test_where_a_call_would_be_asked_about_nothing_is_tried() -> None:
    asking = Gate(Approvals(), "ask", answers=frozenset("*"), ask=lambda required: True)
    tool, _, _ = await ask(rounds("print(7)"), "thorough", gate=asking)
    assert (tool.ran, tool.tried) == (["print(7)"], [])


async def test_the_names_in_the_question_count_as_results() -> None:
    tool, _, _ = await ask(
        rounds("x = 1", *["x = 2"] * SAMPLES), "thorough", prompt="Make x_1 from {df}, please: naïve 2nd."
    )
    assert tool.names == ["Make", "x_1", "from", "df", "please", "naïve", "nd"]


async def test_the_tokens_of_all_samples_are_counted() -> None:
    _, quick, _ = await ask(rounds("print(7)"), "quick")
    _, thorough, _ = await ask(rounds("print(7)", *["print(8)"] * SAMPLES), "thorough")
    spent = [
        next(body.usage["prompt_tokens"] for body in bodies if isinstance(body, TurnFinished))
        for bodies in (quick, thorough)
    ]
    assert spent[1] > 3 * spent[0]


async def test_the_tokens_of_the_samples_do_not_fill_the_context() -> None:
    tool, store = Copies(), MemoryStore()
    engine = ScriptedEngine(rounds("print(7)", *["print(8)"] * SAMPLES))
    one = Agent(store, engine, KEY, [tool], gate=Gate(Approvals(), answers=frozenset("*")))
    await one.turn(TurnRequest("Go.", effort="thorough"), lambda body: None)
    (turn,) = await store.turns(KEY)
    assert tool.tried, "several programs were compared"
    assert 0 < int(turn.record["context"]) < turn.usage["prompt_tokens"] / 2


class FailingSamples(ScriptedEngine):
    """An engine on which every request fails except the first greedy ones."""

    def info(self) -> EngineInfo:
        return EngineInfo("failing", True, 32_768, vision=False, state="ready", batches=True)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        if request.sampling.seed is not None:
            raise EngineError("The cache is full.")
        async for chunk in super().stream(request):
            yield chunk


async def test_samples_that_fail_leave_the_likeliest_program() -> None:
    tool = Copies()
    one = Agent(MemoryStore(), FailingSamples(rounds("print(7)")), KEY, [tool], effort="thorough")
    result = await one.run("Go.")
    assert (result.text, tool.ran, tool.tried) == ("Done.", ["print(7)"], [])


@pytest.mark.parametrize("prompt", ["Go.", "Answer in the form @n[count]."])
async def test_samples_that_take_much_longer_than_the_first_program_have_no_vote(
    prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voting_engine, "MIN_PATIENCE_S", 0.2)
    slow: dict[str, Any] = {"text": "x", "delay": 30.0, "calls": [python("print(9)")]}
    script: Script = [
        {"calls": [python("print(7)")]},
        *[slow] * (SAMPLES - 1),
        {"calls": [python("print(8)")]},
        {"text": "Done."},
    ]
    tool, _, _ = await ask(script, "thorough", prompt=prompt)
    assert (tool.ran, tool.tried) == (["print(7)"], [["print(7)", "print(8)"]])


async def test_a_cancelled_turn_cancels_its_samples() -> None:
    script = [*rounds("print(7)")[:1], *({"text": "x", "delay": 30.0} for _ in range(SAMPLES))]
    one = Agent(MemoryStore(), ScriptedEngine(script), KEY, [Copies()], effort="thorough")
    task = asyncio.create_task(one.run("Go."))
    async with asyncio.timeout(20):
        while len(others := asyncio.all_tasks() - {task, asyncio.current_task()}) < SAMPLES:
            await asyncio.sleep(0.01)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert not (asyncio.all_tasks() & others)


async def test_a_program_whose_error_says_how_to_correct_it_is_compared_as_corrected() -> None:
    removed = "import numpy as np\nprint(np.product([2, 3]))"
    tool, _, _ = await ask(rounds("print(1 / 0)", *[removed] * SAMPLES), "thorough")
    assert tool.ran == [removed.replace("product", "prod")]


async def test_a_correction_that_needed_no_model_runs_without_a_vote() -> None:
    failed, corrected = {**python("1 / 0"), "id": "c"}, {**python("print(7)"), "id": "c-fix"}
    tool, _, engine = await ask([{"calls": [failed]}, {"calls": [corrected]}, {"text": "Done."}])
    assert (tool.ran, tool.tried, len(engine.requests)) == (["1 / 0", "print(7)"], [], 3)


async def test_a_program_that_leaves_out_a_part_of_the_question_loses_the_vote() -> None:
    means = ["from statistics import mean\nprint(mean([1, 2, 9]))"] * (sum(ROUNDS["thorough"]) - 1)
    median = "from statistics import median\nprint(median([1, 2, 9]))"
    tool, _, _ = await ask(rounds(means[0], *means, median), "thorough", prompt="What is the median of 1, 2, 9?")
    assert tool.ran == [median]


async def test_a_program_that_prints_no_value_in_the_demanded_form_loses_the_vote() -> None:
    missing = ["print('@mean[nan]')"] * sum(ROUNDS["thorough"])
    tool, _, _ = await ask(rounds(*missing, "print('@mean[4.0]')"), "thorough", prompt="Answer in the form @mean[m].")
    assert tool.ran == ["print('@mean[4.0]')"]


FORM = "Answer in the form @n[count]."


async def test_samples_are_decoded_beside_the_first_program_if_the_question_demands_values() -> None:
    both = asyncio.Barrier(1 + AFTER_FAILURE)

    class Together(ScriptedEngine):
        async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
            if request.messages[-1].role == "user":
                async with asyncio.timeout(10):
                    await both.wait()  # only passes if all programs are decoded at the same time
            async for chunk in super().stream(request):
                yield chunk

    tool = Copies()
    engine = Together(rounds(*["print(7)"] * (1 + AFTER_FAILURE)), batches=True)
    one = Agent(MemoryStore(), engine, KEY, [tool], gate=Gate(Approvals(), answers=frozenset("*")))
    result = await one.turn(TurnRequest(FORM), lambda body: None)
    assert (result.text, tool.ran) == ("Done.", ["print(7)"])


async def test_a_text_in_place_of_the_demanded_program_ends_the_samples_beside_it() -> None:
    script: Script = [
        {"when": "Answer", "text": "It is @n[3].", "delay": 0.1},
        *({"text": "x", "delay": 30.0} for _ in range(AFTER_FAILURE)),
    ]
    before = asyncio.all_tasks()
    tool, _, engine = await ask(script, prompt=FORM)
    assert (tool.ran, tool.tried, len(engine.requests)) == ([], [], 1 + AFTER_FAILURE)
    assert asyncio.all_tasks() == before
