"""Converts the events of a turn into the stream of a response and into its resource."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_kernel.core.events import (
    AnswerLogprobs,
    CallFinished,
    CallOutput,
    CallReturned,
    CallStarted,
    ContextBuilt,
    Event,
    FileProduced,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from jupyter_ext.api.dialects import tool_call_log
from jupyter_ext.api.dialects.codec import DONE, Frame, token_logprob
from jupyter_ext.api.dialects.tool_call_log import APPROVAL, ToolCallLog
from jupyter_ext.api.responses.output_items import (
    LOGPROBS,
    RUNS,
    AnswerText,
    Output,
    Ran,
    Said,
    ShellRun,
    Thought,
    call_for_client,
)
from jupyter_ext.api.responses.response_object import ResponseFacts, fault_of, usage_of

CANCELLED = "The server that ran this response stopped before its end."


class ResponsesCodec:
    """Converts the events of a turn into the stream of a response and into its resource.

    All events of the stream are numbered from 0, including those that only clients of mistral.rs know: approval
    questions and, if ``facts.reports`` is set, the progress of calls, produced files and notices. ``TurnFinished``
    produces the terminal event, whatever the state of the turn.
    """

    def __init__(self, facts: ResponseFacts) -> None:
        self.facts = facts
        self._output = Output(facts.stem, facts.session, frozenset(facts.include))
        self._number = 0
        self._answer: AnswerText | None = None
        self._thought: Thought | None = None
        self._runs: dict[str, Ran] = {}
        self._files: list[Mapping[str, Any]] = []
        self._log = ToolCallLog()
        self._resource = facts.resource("queued" if facts.background else "in_progress")

    @property
    def resource(self) -> Mapping[str, Any]:
        """Return the resource in its present state. While the response runs, it contains only complete items."""
        if self._resource["status"] == "in_progress":
            whole = [item for item in self._output.items if item["status"] not in ("in_progress", "interpreting")]
            return self.facts.resource("in_progress", whole)
        return self._resource

    def whole(self) -> Mapping[str, Any]:
        return self.resource

    def begin(self) -> Iterable[Frame]:
        """Begin the stream. A response in the background stays queued until its turn begins."""
        then = "response.queued" if self.facts.background else "response.in_progress"
        return [self._event(kind, {"response": self._resource}) for kind in ("response.created", then)]

    def feed(self, event: Event) -> Iterator[Frame]:
        for kind, body in self._translate(event):
            yield self._event(kind, body)
        if isinstance(event.body, TurnFinished):
            yield DONE

    def _event(self, kind: str, body: Mapping[str, Any]) -> Frame:
        number, self._number = self._number, self._number + 1
        return Frame({"type": kind, "sequence_number": number, **body}, kind)

    def _translate(self, event: Event) -> Iterator[Said]:
        body = event.body
        match body:
            case TextDelta(text):
                yield from self._text(text)
            case ReasoningDelta(text):
                yield from self._reasoning(text)
            case TurnStarted():
                yield from self._start()
            case ContextBuilt():
                yield from self._end_text("completed")
            case AnswerLogprobs(tokens):
                self._logprobs(tokens)
            case CallReturned():
                yield from self._end_text("completed")
                yield from call_for_client(self._output, body, self.facts.namespaces)
            case TurnFinished():
                yield from self._end(body)
            case _:
                yield from self._feed_tools(event)

    def _feed_tools(self, event: Event) -> Iterator[Said]:
        body, report = event.body, self._log.record(event)
        run: Ran | None = None
        match body:
            case CallStarted():
                yield from self._end_text("completed", between=True)
                if (kind := RUNS.get(body.name)) is not None and (kind is not ShellRun or self.facts.shell):
                    run = self._runs[body.call] = kind(self._output, body)
                    yield from run.begin()
            case CallOutput() if body.call in self._runs:
                yield from self._runs[body.call].add_output(body)
            case CallFinished():
                run = self._runs.pop(body.call, None)
            case FileProduced(_, file):
                if not file.get("code"):
                    self._files.append(file)
                report = tool_call_log.FILE, {"file": dict(file)}
        if report is not None and not isinstance(run, ShellRun) and (self.facts.reports or report[0] == APPROVAL):
            yield report
        if isinstance(body, CallFinished) and run is not None:
            yield from run.end(body)

    def _start(self) -> Iterator[Said]:
        if self._resource["status"] == "queued":
            self._resource = self.facts.resource("in_progress")
            yield "response.in_progress", {"response": self._resource}

    def _text(self, text: str) -> Iterator[Said]:
        if self._answer is None:
            yield from self._end_text("completed")
            self._answer = AnswerText(self._output)
            yield from self._answer.begin()
        yield from self._answer.say(text)

    def _reasoning(self, text: str) -> Iterator[Said]:
        if self._thought is None:
            yield from self._end_text("completed")
            summary = bool((self.facts.echo.get("reasoning") or {}).get("summary"))
            self._thought = Thought(self._output, summary=summary)
            yield from self._thought.begin()
        yield from self._thought.say(text)

    def _logprobs(self, tokens: Iterable[Mapping[str, Any]]) -> None:
        if self._answer is None or LOGPROBS not in self.facts.include:
            return
        self._answer.tokens += [token_logprob(token) for token in tokens]

    def _end_text(self, status: str, *, between: bool = False) -> Iterator[Said]:
        """End the message whose text is being streamed, if there is one. ``between``: calls of server tools follow, so
        the message is not the answer."""
        thought, self._thought = self._thought, None
        yield from thought.end(status) if thought is not None else ()
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if between:
            answer.mark_commentary()
        else:
            answer.files, self._files = self._files, []
        yield from answer.end(status)

    def _end(self, end: TurnFinished) -> Iterator[Said]:
        status = _status_of(end)
        yield from self._end_text("completed" if status == "completed" else "incomplete")
        for run in self._runs.values():
            yield from run.end(None)
        self._runs.clear()
        if self._files and end.finish != "calls" and status in ("completed", "incomplete"):
            self._answer = AnswerText(self._output)  # files have to be cited in some text, even if no text follows them
            yield from self._answer.begin()
            yield from self._end_text("completed")
        fault = fault_of(end.error or {"message": end.reason or CANCELLED}) if status == "failed" else None
        self._resource = self.facts.resource(
            status,
            self._output.items,
            usage=usage_of(end.usage),
            error=fault,
            incomplete="max_output_tokens" if status == "incomplete" else "",
            completed=time.time() if status == "completed" else None,
        )
        self._resource |= self._log.fields
        kind = status if status in ("completed", "failed") else "incomplete"
        yield f"response.{kind}", {"response": self._resource}


def _status_of(end: TurnFinished) -> str:
    """Return the status of the response. It is ``cancelled`` for a turn that somebody stopped, and ``failed`` for a
    turn that failed or was interrupted because its server ended."""
    if end.state == "committed":
        return "incomplete" if end.finish == "length" else "completed"
    return "cancelled" if end.state == "cancelled" else "failed"
