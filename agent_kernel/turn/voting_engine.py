"""Implements an engine that samples several programs for one model call. It answers with a program of the largest group
whose outcomes agree.

The first program is the likeliest one. The further programs are sampled from the same conversation, all at once: after
the first program, or beside it if the reply is expected to be a program. An engine that decodes in batches computes
their shared prompt once. Each program is tried without lasting effects, and the vote decides which of them the reply
calls. A reply is passed on unchanged if it calls no Python, if it calls several tools, or if its program is a
correction that was made without the model.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import Message, ToolCall, Usage, corrected_call
from agent_kernel.core.programs.answer_form import unusable_value, values_in_form
from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.core.programs.program_repair import repair_program
from agent_kernel.core.programs.question_coverage import uncovered_sentences
from agent_kernel.core.protocols import (
    THINKING,
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineInfo,
    EngineRequest,
    WaitChunk,
)
from agent_kernel.core.settings import Effort
from agent_kernel.core.shielded_await import cancel_tasks
from agent_kernel.turn.model_reply import Reply
from agent_kernel.turn.program_vote import TriedProgram, Vote, vote

PYTHON = "python"
TEMPERATURE = 0.7
"""Sampling temperature of the further programs. With this value, a vote over the greedy program and 8 samples solved 29
of 37 tasks; the greedy program alone solved 25 (model with 0.5 billion parameters)."""
ROUNDS: Mapping[Effort, Sequence[int]] = MappingProxyType({"quick": (), "auto": (3, 4), "thorough": (7, 8)})
"""Number of programs that are sampled in each round of a vote, in addition to the program that the model considers most
likely. Of 164 questions that demand values in a form, the likeliest program was right for 64, the winner of these
rounds for 87 (``auto``) and 95 (``thorough``), and the winner of 32 samples for 98. That took 7, 14 and 32 times the
tokens of the one program (Qwen2.5-Coder-1.5B)."""
PATIENCE = 4.0
"""Samples may take this many times the seconds of the first program. Eight sequences that are decoded together take
about twice as long as one, and a sample that repeats itself up to the limit of tokens would hold up the vote."""
PATIENCE_BESIDE = 2.0
"""Like PATIENCE, for samples that are decoded beside the first program, because it is then as slow as they are."""
MIN_PATIENCE_S = 20.0
NAME = re.compile(r"[^\W\d]\w*")
MAX_NAMES = 100
Try: TypeAlias = Callable[[Sequence[str], Sequence[str]], Awaitable[list[ProgramOutcome]]]
"""Tries programs: (programs, names of variables whose content counts) -> outcomes."""
_Sample: TypeAlias = asyncio.Task[tuple[str, Usage]]
"""A task that samples a program. Its result is the code of the program and the usage."""

log = logging.getLogger(__name__)


class _Ballot:
    """The programs of one vote, with the likeliest one first, and the result of the vote so far."""

    def __init__(self, request: EngineRequest, first: CallChunk) -> None:
        self.request = request
        self.programs = [_code(first.call)]
        self.tried: dict[str, TriedProgram] = {}
        self.counted = 0
        """Number of the programs that ``decided`` takes into account."""
        self.winner = first
        self.decided: Vote | None = None

    def take(self, samples: Sequence[str], before: int) -> None:
        """Set the samples of the present round; ``before`` is the number of samples of earlier rounds."""
        self.programs[before + 1 :] = samples

    def decide(self, voters: Sequence[TriedProgram]) -> None:
        """Set the result of the vote among ``voters``."""
        self.decided = vote(voters)
        if self.decided is not None:
            arguments = {**self.winner.call.arguments, "code": voters[self.decided.winner].code}
            self.winner = CallChunk(replace(self.winner.call, arguments=arguments))

    def may_be_settled_among(self, programs: int) -> bool:
        """Whether the winners would be more than half of ``programs`` programs if all programs that are not counted yet
        agreed with them. Counting takes time, so the caller counts only when this is true."""
        agree = self.decided.agree if self.decided else 0
        return 2 * (agree + len(self.programs) - self.counted) > programs

    def is_settled_among(self, programs: int) -> bool:
        return self.decided is not None and self.decided.is_settled_among(programs)


@dataclass(frozen=True, slots=True)
class VotingEngine:
    """Wraps ``engine`` for one model call and samples further programs in rounds. ``rounds`` has the number of samples
    of each round. A round follows only if all samples of the one before it were complete in time and the vote is not
    settled. With ``expects_program``, the first round is decoded beside the likeliest program: four programs of 100
    tokens for a prompt of 2,600 tokens then take 0.7 times as long as one program followed by three (Qwen2.5-Coder-1.5B
    on two cores). The round is cancelled if the reply turns out to be something else. ``report`` is called with the
    result of the vote."""

    engine: Engine
    try_programs: Try
    report: Callable[[Vote], None]
    rounds: Sequence[int]
    expects_program: bool = False

    def info(self) -> EngineInfo:
        return self.engine.info()

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one model call. Raises EngineError."""
        calls: list[CallChunk] = []
        end = EndChunk("stop", Usage())
        started = time.monotonic()
        early_samples = self._start_samples(request, 1, self.rounds[0]) if self.expects_program else []
        try:
            if early_samples:
                yield _writing(len(early_samples) + 1)
            async with aclosing(self.engine.stream(request)) as chunks:
                async for chunk in chunks:
                    match chunk:
                        case CallChunk():
                            calls.append(chunk)
                        case EndChunk():
                            end = chunk
                        case WaitChunk(stage) if stage == THINKING and early_samples:
                            yield _writing(len(early_samples) + 1)
                        case _:
                            yield chunk
            if len(calls) == 1 and _code(calls[0].call) and not corrected_call(calls[0].call.id):
                first_s = time.monotonic() - started
                async for chunk in self._compare(request, calls[0], end, first_s, early_samples):
                    yield chunk
                return
        finally:
            await cancel_tasks(*early_samples)
        for call in calls:
            yield call
        yield end

    async def aclose(self) -> None:
        """Do nothing: the wrapped engine is closed by its owner."""

    async def _compare(
        self,
        request: EngineRequest,
        first: CallChunk,
        end: EndChunk,
        first_s: float,
        early_samples: Sequence[_Sample],
    ) -> AsyncGenerator[Chunk, None]:
        """Sample further programs, and yield the call with the program that won the vote and the end of the reply.
        ``first`` and ``end`` are the call with the likeliest program and the end of its reply, which took ``first_s``
        seconds. ``early_samples`` are the samples of the first round, if they are running already."""
        ballot = _Ballot(request, first)
        count, spent = 0, Usage()
        for number in self.rounds:
            if early_samples and not count:
                samples, patience_s = early_samples, (PATIENCE_BESIDE - 1) * first_s  # they have run for first_s
            else:
                samples, patience_s = self._start_samples(request, count + 1, number), PATIENCE * first_s
            count += number
            yield _writing(count + 1)
            replies: list[tuple[str, Usage]] = []
            async with aclosing(self._replies_so_far(samples, max(MIN_PATIENCE_S, patience_s))) as arriving:
                async for replies in arriving:
                    ballot.take([code for code, _ in replies], count - number)
                    if ballot.may_be_settled_among(count + 1):
                        async for chunk in self._count_votes(ballot, count + 1):
                            yield chunk
                    if ballot.is_settled_among(count + 1):
                        break
                    if len(replies) < number:
                        yield _writing(count + 1)
            async for chunk in self._count_votes(ballot, count + 1):
                yield chunk
            spent = sum((usage for _, usage in replies), spent)
            if len(replies) < number or (ballot.decided and ballot.is_settled_among(ballot.decided.tried)):
                break
        if ballot.decided:
            self.report(ballot.decided)
        yield ballot.winner
        # All samples have the prompt of the first program, so the context is as full as for that program alone.
        yield replace(end, usage=end.usage + spent, context=end.context_tokens)

    async def _count_votes(self, ballot: _Ballot, total: int) -> AsyncGenerator[WaitChunk, None]:
        """Try the programs that are not tried yet, and decide the vote among all of them. Do nothing if no program was
        added since the last count. Before programs are tried, yield which of the ``total`` programs they are, without
        repeated ones."""
        if ballot.counted == len(ballot.programs):
            return
        failed = set(failed_programs(ballot.request.messages))
        programs = [code for code in ballot.programs if code.strip() and code not in failed]
        ballot.counted = len(ballot.programs)
        if len(programs) < 2:
            return
        question = _question(ballot.request.messages)
        names = dict.fromkeys(NAME.findall(question))
        facts = [message.text for message in ballot.request.messages if message.hidden]
        new = [code for code in dict.fromkeys(programs) if code not in ballot.tried]
        if new:
            repeated = len(ballot.programs) - len(dict.fromkeys(programs))
            yield _trying(len(ballot.tried), len(new), total - repeated)
        outcomes = await self._try(new, list(names)[:MAX_NAMES]) if new else {}
        for code, one in outcomes.items():
            omits = len(uncovered_sentences(question, one.code, facts))
            omits += bool(unusable_value(one.outcome.text, question))
            ballot.tried[code] = replace(one, omits=omits, answer=values_in_form(one.outcome.text, question))
        ballot.decide([ballot.tried[code] for code in programs if code in ballot.tried])

    async def _try(self, programs: Sequence[str], names: Sequence[str]) -> dict[str, TriedProgram]:
        """Return each program with its outcome. A program whose error says how to correct it is tried once more with
        the correction, and the corrected program replaces it if it runs without an error."""
        outcomes = await self.try_programs(programs, names)
        tried = {code: TriedProgram(code, outcome) for code, outcome in zip(programs, outcomes, strict=False)}
        corrections = {code: repair_program(code, one.outcome.text) for code, one in tried.items() if not one.ran}
        corrections = {code: corrected for code, corrected in corrections.items() if corrected}
        if corrections:
            again = await self.try_programs(list(corrections.values()), names)
            for (code, corrected), outcome in zip(corrections.items(), again, strict=False):
                if outcome.status == "success":
                    tried[code] = TriedProgram(corrected, outcome)
        return tried

    def _start_samples(self, request: EngineRequest, first_seed: int, number: int) -> list[_Sample]:
        """Start to sample ``number`` programs, each with a seed of its own."""
        shown = without_failed_call(request)
        seeds = range(first_seed, first_seed + number)
        return [asyncio.create_task(self._sample_one(shown, seed)) for seed in seeds]

    async def _replies_so_far(
        self, samples: Sequence[_Sample], patience_s: float
    ) -> AsyncGenerator[list[tuple[str, Usage]], None]:
        """Yield (code, usage) of all complete samples each time that further ones are complete, in the order of
        ``samples``. The code is empty if the sample contains no program. Samples that are not complete after
        ``patience_s`` seconds, or when the caller closes the generator, are cancelled."""
        deadline = time.monotonic() + patience_s
        waiting = set(samples)
        try:
            while waiting:
                left_s = max(0.0, deadline - time.monotonic())
                done, waiting = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return
                yield [sample.result() for sample in samples if sample not in waiting]
        finally:
            await cancel_tasks(*samples)

    async def _sample_one(self, request: EngineRequest, seed: int) -> tuple[str, Usage]:
        sampling = replace(request.sampling, temperature=TEMPERATURE, seed=seed)
        reply = Reply()
        try:
            await reply.read(self.engine, replace(request, sampling=sampling, tool_choice=PYTHON))
        except AgentKernelError as error:  # the vote uses the other samples only
            log.info("the model could not write one of the programs for the vote: %s", error)
        return next(filter(None, map(_code, reply.calls)), ""), reply.end.usage if reply.end else Usage()


def _writing(programs: int) -> WaitChunk:
    return WaitChunk(f"writing {programs} programs")


def _trying(before: int, programs: int, total: int) -> WaitChunk:
    """Return the stage in which ``programs`` of the ``total`` programs are tried, after ``before`` others."""
    first, last = before + 1, before + programs
    which = f"program {first}" if programs == 1 else f"programs {first} to {last}"
    return WaitChunk(f"trying {which} of {total} in a draft")


def without_failed_call(request: EngineRequest) -> EngineRequest:
    """Return the request as it was before the last call, if that call failed: a sample that sees a failed program
    repeats it."""
    messages = list(request.messages)
    while messages and messages[-1].role == "tool" and messages[-1].status == "error":
        messages.pop()
    if len(messages) == len(request.messages) or not messages or messages[-1].role != "assistant":
        return request
    return replace(request, messages=tuple(messages[:-1]))


def failed_programs(messages: Sequence[Message]) -> list[str]:
    """Return the code of the calls of this turn that ended with an error."""
    errors = {message.call_id for message in messages if message.role == "tool" and message.status == "error"}
    calls = [call for message in _turn(messages) for call in message.calls]
    return [_code(call) for call in calls if call.id in errors]


def _turn(messages: Sequence[Message]) -> Sequence[Message]:
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    return messages[last + 1 :]


def _question(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role == "user" and not message.hidden), "")


def _code(call: ToolCall) -> str:
    code = call.arguments.get("code") if call.name == PYTHON else None
    return code if isinstance(code, str) else ""
