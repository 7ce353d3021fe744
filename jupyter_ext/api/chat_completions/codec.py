"""Converts the events of a turn into chunks of ``chat/completions``, or into one completion.

A stream consists of the chunk with the role, deltas, named events of the server's tools, the chunk with
``finish_reason``, the chunk with the usage if the client requested it, and ``[DONE]``. If a turn fails or is stopped, a
frame ``{error}`` replaces the chunk with ``finish_reason``. An empty line separates the texts of two rounds. Each of
several choices is a turn; the chunks of all choices follow each other in the order in which their events arrive.

A named event is also a chunk, with an empty delta: OpenAI's clients parse the data of every event as a chunk, whatever
its name, and most of them read ``choices`` without checking that it exists."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Any

from agent_kernel.core.errors import TurnStopped
from agent_kernel.core.events import (
    AnswerLogprobs,
    CallReturned,
    ContextBuilt,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from agent_kernel.core.messages import Usage
from agent_kernel.core.session import creation_time, new_id
from jupyter_ext.api.dialects.codec import DONE, Frame, token_logprob
from jupyter_ext.api.dialects.openai_errors import openai_error
from jupyter_ext.api.dialects.tool_call_log import FILE, ToolCallLog, arguments_text
from jupyter_ext.turns.dialect_request import DEFAULT

FINISH = {"stop": "stop", "length": "length", "calls": "tool_calls"}
BETWEEN = "\n\n"
CHUNK = {"object": "chat.completion.chunk"}
NOTHING: Mapping[str, Any] = MappingProxyType({})


class ChatCodec:
    """Converts the events of one turn, or of one turn for each choice, into a chat completion, or into its chunks.

    ``model`` is the name that the client sent; ``session`` is reported at the end. ``turn`` is the id of the turn,
    from which the completion's id and time are derived, so that they are the same for a repeated request.
    ``further_turns`` are the ids of the turns of the choices after the first one.
    ``include_usage`` None: the last chunk has the usage; True: the usage has a chunk of its own, as in OpenAI's API;
    False: no usage is sent. ``extended``: the request has a field that OpenAI's API does not have. Then the event of a
    produced file has the fields of the file, as in mistral.rs. Otherwise they are in the field ``file``, because some
    of OpenAI's clients refuse a chunk with another id than the completion's.
    """

    def __init__(
        self,
        model: str,
        session: str = "",
        *,
        turn: str = "",
        further_turns: Sequence[str] = (),
        include_usage: bool | None = None,
        extended: bool = True,
    ) -> None:
        turn = turn or new_id("turn")
        id, created = f"chatcmpl-{turn.removeprefix('turn-')}", creation_time(turn)
        self._facts = {"id": id, "created": int(time.time()) if created is None else created, "model": model or DEFAULT}
        self._session = {"session_id": session} if session else {}
        self._include_usage = include_usage
        self._extended = extended
        self._choices = [ChatChoice(index) for index in range(1 + len(further_turns))]
        self._by_turn = dict(zip(further_turns, self._choices[1:], strict=True))
        self._calls = ToolCallLog()
        self._failed = False

    def begin(self) -> Iterable[Frame]:
        return [self._chunk(choice, {"role": "assistant", "content": ""}) for choice in self._choices]

    def feed(self, event: Event) -> Iterator[Frame]:
        if self._failed:  # the stream has ended with the error of another choice
            return
        choice = self._by_turn.get(event.turn, self._choices[0])
        body, here = event.body, choice.rounds[-1]
        match body:
            case TextDelta(text):
                apart = not here.text and any(before.text for before in choice.rounds)
                here.text.append(text)
                yield self._chunk(choice, {"content": BETWEEN + text if apart else text})
            case ReasoningDelta(text):
                here.reasoning.append(text)
                yield self._chunk(choice, {"reasoning_content": text})
            case ContextBuilt():
                choice.rounds.append(ChatRound())
            case AnswerLogprobs(tokens):
                here.logprobs += (logprobs := [token_logprob(token) for token in tokens])
                yield self._chunk(choice, {}, logprobs={"content": logprobs, "refusal": None})
            case CallReturned():
                here.calls.append(call_for_client(body))
                yield self._chunk(choice, {"tool_calls": [{"index": len(here.calls) - 1, **here.calls[-1]}]})
            case TurnFinished():
                choice.end = body
                yield from self._ending(choice, body)
            case _:
                if (report := self._calls.record(event)) is not None:
                    yield self._report(choice, *report)

    def whole(self) -> Mapping[str, Any]:
        """Return the completion. Raises TurnStopped if a turn was stopped before its end."""
        return {
            **self._facts,
            "object": "chat.completion",
            "choices": [choice.complete() for choice in self._choices],
            "usage": self._usage(),
            **self._calls.fields,
            **self._session,
        }

    def _usage(self) -> dict[str, Any]:
        ends = [choice.end.usage for choice in self._choices if choice.end is not None]
        return chat_usage(ends[0] if len(ends) == 1 else total_usage(ends).to_json())

    def _ending(self, choice: ChatChoice, end: TurnFinished) -> Iterator[Frame]:
        if end.state != "committed":
            self._failed = True
            failed = {"code": "turn_stopped", "message": describe_stop(end), "hint": "", "details": {}}
            yield Frame({"error": openai_error(500, end.error or failed)})
            yield DONE
            return
        if any(other.end is None for other in self._choices):
            yield self._chunk(choice, {}, FINISH.get(end.finish, "stop"))
            return
        usage = self._usage()
        more = self._session if self._include_usage is not None else {"usage": usage, **self._session}
        yield self._chunk(choice, {}, FINISH.get(end.finish, "stop"), more=more)
        if self._include_usage:
            yield Frame({**self._facts, **CHUNK, "choices": [], "usage": usage, **self._session})
        yield DONE

    def _chunk(
        self,
        choice: ChatChoice,
        delta: Mapping[str, Any],
        finish: str | None = None,
        *,
        logprobs: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] = NOTHING,
    ) -> Frame:
        body = {"index": choice.index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return Frame({**self._facts, **CHUNK, "choices": [body], **more})

    def _report(self, choice: ChatChoice, name: str, data: Mapping[str, Any]) -> Frame:
        body = {"index": choice.index, "delta": {}, "finish_reason": None}
        if name == FILE and not self._extended:
            data = {"type": FILE, "file": data}
        return Frame({**self._facts, **CHUNK, "choices": [body], **data}, name)


class ChatChoice:
    """One answer to the request: the turn that gives it. ``end`` is the turn's last event."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.rounds: list[ChatRound] = [ChatRound()]
        self.end: TurnFinished | None = None

    def complete(self) -> dict[str, Any]:
        """Return the choice of a completion. Raises TurnStopped if the turn was stopped before its end."""
        end = self.end
        if end is None or end.state != "committed":
            raise TurnStopped(describe_stop(end))
        last = self.rounds[-1]
        if not (last.text or last.calls):
            last = next((answer_round for answer_round in reversed(self.rounds) if answer_round.text), last)
        return {
            "index": self.index,
            "message": last.message,
            "finish_reason": FINISH.get(end.finish, "stop"),
            "logprobs": {"content": last.logprobs, "refusal": None} if last.logprobs else None,
        }


class ChatRound:
    """The output of one model call of the turn."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.logprobs: list[dict[str, Any]] = []

    @property
    def message(self) -> dict[str, Any]:
        text = "".join(self.text)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not self.calls else None}
        message["refusal"] = None
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


def call_for_client(body: CallReturned) -> dict[str, Any]:
    """Return a tool call that the client runs, in OpenAI's format."""
    return {
        "id": body.call,
        "type": "function",
        "function": {"name": body.name, "arguments": arguments_text(body.arguments)},
    }


def describe_stop(end: TurnFinished | None) -> str:
    return f"The turn was stopped before its end{f': {end.reason}' if end and end.reason else ''}."


def total_usage(wires: Sequence[Mapping[str, Any]]) -> Usage:
    """Return the usage of several choices that are computed at the same time. As in OpenAI's API, the prompt, which
    is the same for all of them, counts once; of it, the tokens that one choice got from another were not cached
    before."""
    usages = [Usage.from_json(wire) for wire in wires]
    return replace(
        reduce(add, usages),
        prompt_tokens=max(usage.prompt_tokens for usage in usages),
        reused_tokens=min(usage.reused_tokens for usage in usages),
        first_token_s=min(usage.first_token_s for usage in usages),
        seconds=max(usage.seconds for usage in usages),
        decode_s=max(usage.decode_s for usage in usages),
    )


def chat_usage(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token usage in the format of chat/completions.

    ``wire`` is ``TurnFinished.usage``, the sum of all rounds. The result has ``estimated`` if the engine does not count
    tokens.
    """
    usage = Usage.from_json(wire)
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
        **speeds(usage),
    }
    return body | ({"estimated": True} if usage.estimated else {})


def speeds(usage: Usage) -> dict[str, float]:
    """Return mistral.rs's fields: tokens per second and durations in seconds, for the prompt, the completion and both.
    They are 0 where nothing was measured. The duration of the prompt is the total duration minus that of decoding."""
    decoding = usage.decode_s or max(0.0, usage.seconds - usage.first_token_s)
    reading = max(0.0, usage.seconds - decoding)
    total = usage.prompt_tokens + usage.completion_tokens
    return {
        "avg_tok_per_sec": _rate(total, usage.seconds),
        "avg_prompt_tok_per_sec": _rate(usage.prompt_tokens, reading),
        "avg_compl_tok_per_sec": _rate(usage.completion_tokens, decoding),
        "total_time_sec": round(usage.seconds, 4),
        "total_prompt_time_sec": round(reading, 4),
        "total_completion_time_sec": round(decoding, 4),
    }


def _rate(tokens: int, seconds: float) -> float:
    return round(tokens / seconds, 2) if seconds > 0 else 0.0
