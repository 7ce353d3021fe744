"""Converts the events of a turn into chunks of ``chat/completions``, or into one completion.

A stream consists of the chunk with the role, deltas, named events of the server's tools, the chunk with
``finish_reason``, the chunk with the usage if the client requested it, and ``[DONE]``. If a turn fails or is stopped, a
frame ``{error}`` replaces the chunk with ``finish_reason``. An empty line separates the texts of two rounds.

A named event is also a chunk, with an empty delta: OpenAI's clients parse the data of every event as a chunk, whatever
its name, and most of them read ``choices`` without checking that it exists."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
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
    """Converts the events of one turn into a chat completion, or into its chunks.

    ``model`` is the name that the client sent; ``session`` is reported at the end. ``turn`` is the id of the turn,
    from which the completion's id and time are derived, so that they are the same for a repeated request.
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
        include_usage: bool | None = None,
        extended: bool = True,
    ) -> None:
        turn = turn or new_id("turn")
        id, created = f"chatcmpl-{turn.removeprefix('turn-')}", creation_time(turn)
        self._facts = {"id": id, "created": int(time.time()) if created is None else created, "model": model or DEFAULT}
        self._session = {"session_id": session} if session else {}
        self._include_usage = include_usage
        self._extended = extended
        self._rounds: list[ChatRound] = [ChatRound()]
        self._calls = ToolCallLog()
        self._end: TurnFinished | None = None

    def begin(self) -> Iterable[Frame]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def feed(self, event: Event) -> Iterator[Frame]:
        body, here = event.body, self._rounds[-1]
        match body:
            case TextDelta(text):
                apart = not here.text and any(before.text for before in self._rounds)
                here.text.append(text)
                yield self._chunk({"content": BETWEEN + text if apart else text})
            case ReasoningDelta(text):
                here.reasoning.append(text)
                yield self._chunk({"reasoning_content": text})
            case ContextBuilt():
                self._rounds.append(ChatRound())
            case AnswerLogprobs(tokens):
                here.logprobs += (logprobs := [token_logprob(token) for token in tokens])
                yield self._chunk({}, logprobs={"content": logprobs, "refusal": None})
            case CallReturned():
                here.calls.append(call_for_client(body))
                yield self._chunk({"tool_calls": [{"index": len(here.calls) - 1, **here.calls[-1]}]})
            case TurnFinished():
                self._end = body
                yield from self._ending(body)
            case _:
                if (report := self._calls.record(event)) is not None:
                    yield self._report(*report)

    def whole(self) -> Mapping[str, Any]:
        """Return the completion. Raises TurnStopped if the turn was stopped before its end."""
        end = self._end
        if end is None or end.state != "committed":
            raise TurnStopped(describe_stop(end))
        last = self._rounds[-1]
        if not (last.text or last.calls):
            last = next((answer_round for answer_round in reversed(self._rounds) if answer_round.text), last)
        choice = {
            "index": 0,
            "message": last.message,
            "finish_reason": FINISH.get(end.finish, "stop"),
            "logprobs": {"content": last.logprobs, "refusal": None} if last.logprobs else None,
        }
        return {
            **self._facts,
            "object": "chat.completion",
            "choices": [choice],
            "usage": chat_usage(end.usage),
            **self._calls.fields,
            **self._session,
        }

    def _ending(self, end: TurnFinished) -> Iterator[Frame]:
        if end.state != "committed":
            failed = {"code": "turn_stopped", "message": describe_stop(end), "hint": "", "details": {}}
            yield Frame({"error": openai_error(500, end.error or failed)})
            yield DONE
            return
        usage = chat_usage(end.usage)
        more = self._session if self._include_usage is not None else {"usage": usage, **self._session}
        yield self._chunk({}, FINISH.get(end.finish, "stop"), more=more)
        if self._include_usage:
            yield Frame({**self._facts, **CHUNK, "choices": [], "usage": usage, **self._session})
        yield DONE

    def _chunk(
        self,
        delta: Mapping[str, Any],
        finish: str | None = None,
        *,
        logprobs: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] = NOTHING,
    ) -> Frame:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return Frame({**self._facts, **CHUNK, "choices": [choice], **more})

    def _report(self, name: str, data: Mapping[str, Any]) -> Frame:
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        if name == FILE and not self._extended:
            data = {"type": FILE, "file": data}
        return Frame({**self._facts, **CHUNK, "choices": [choice], **data}, name)


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
