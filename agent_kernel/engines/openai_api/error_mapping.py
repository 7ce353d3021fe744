"""Converts errors of a server to agent-kernel's errors, which name the cause and the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import AgentKernelError, ContextOverflow, EngineError, UnknownModel, UpstreamFailed
from agent_kernel.core.wire.retry_after import parse_retry_after
from agent_kernel.engines.openai_api.api_keys import key_location, key_of, without_key
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.retry import AGAIN, EngineFault

MAX_SERVER_TEXT = 400
"""Maximum number of characters of a server's text that agent-kernel's errors quote."""
NOT_NOW = frozenset({408, 429, 503, 529})
"""HTTP statuses after which the same request may succeed later. Every other error status is a failure of the server or
its configuration."""
TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?size|maximum context|max_model_len|n_ctx|prompt is too long"
    r"|input is too long|too many (input )?tokens|reduce the length",
    re.IGNORECASE,
)
LENGTH = re.compile(r"(?:context(?: length| size| window)?|n_ctx|max_model_len)\D{0,40}?(\d{3,8})", re.IGNORECASE)
NO_MODEL = re.compile(
    r"model.{0,200}(not|no|n't|un).{0,20}(found|exist|available|known|served)|is pinned to", re.IGNORECASE
)
NO_TOOLS = re.compile(r"--enable-auto-tool-choice|--tool-call-parser|does not support tools|--jinja", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that the server returned. ``words`` is the server's text, shortened, without control characters and
    without the key. ``param`` is the request field that the error names, empty if it names none."""

    status: int
    words: str
    code: str = ""
    param: str = ""
    retry_after: str = ""

    @classmethod
    def read(cls, status: int, body: bytes, retry_after: str, key: str) -> Refusal:
        """Parse the body of an error response, in any of the formats that servers use. ``key`` is removed from its
        texts."""
        text = body.decode("utf-8", "replace")
        code = param = ""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, Mapping):
            fault = answer.get("error", answer)
            fault = fault if isinstance(fault, Mapping) else {"message": fault}
            code, param = str(fault.get("code") or fault.get("type") or ""), str(fault.get("param") or "")
            detail = fault.get("detail") or answer.get("detail")
            text = str(fault.get("message") or (detail if isinstance(detail, str) else _details(detail)) or text)
        return cls(status, plain(without_key(text, key)), plain(without_key(code, key)), param, retry_after)

    def fault(self, endpoint: Endpoint, model: str) -> EngineFault:
        """Return the fault to raise. Its ``may_retry`` is true if the same request may succeed later."""
        error = self._error(endpoint, model)
        hopeless = self.code == "insufficient_quota" or isinstance(error, ContextOverflow)
        # llama-cpp-python answers 500 where other servers answer 422.
        hopeless = hopeless or "validation error" in self.words
        return EngineFault(
            error, may_retry=self.status in AGAIN and not hopeless, after_s=parse_retry_after(self.retry_after)
        )

    @property
    def no_model(self) -> bool:
        """Whether the server says that it does not have the model. With the status 404, the word "model" is enough."""
        names_model = "model_not_found" in self.code or bool(NO_MODEL.search(self.words))
        if self.status == 404:
            return names_model or "model" in self.words.lower()
        return self.status == 400 and names_model

    def _error(self, endpoint: Endpoint, model: str) -> AgentKernelError:
        host = endpoint.host
        details = {"host": host, "status": self.status, "said": self.words}
        if self.status in (401, 403):
            problem = "refused the key" if endpoint.has_key else "asks for a key"
            return UpstreamFailed(
                f"{host} {problem} (HTTP {self.status}).", hint=f"Set {key_location(endpoint)}.", details=details
            )
        if self.status in (400, 413, 422, 500) and (
            TOO_LONG.search(self.words) or "context_length" in self.code or "exceed_context" in self.code
        ):
            length = LENGTH.search(self.words)
            return ContextOverflow(
                f"The prompt is too long: it is longer than {model} on {host} can hold: {self.words}",
                hint="Start another session, or choose a model with a longer context.",
                details=details | ({"context_length": int(length[1])} if length else {}),
            )
        kind = EngineError if self.status in NOT_NOW else UpstreamFailed
        return kind(f"{host} answered HTTP {self.status}: {self.words}", hint=self._hint(), details=details)

    def _hint(self) -> str:
        if NO_TOOLS.search(self.words):
            return (
                "Start the server so that it accepts tools: vLLM with --enable-auto-tool-choice --tool-call-parser, "
                "llama-server with --jinja."
            )
        if self.status == 429:
            return "The server is overloaded, or your quota is used up; ask again later."
        if self.status == 404:
            return "Check the url of this engine; it commonly ends in /v1."
        return ""


def stream_fault(problem: Any, endpoint: Endpoint) -> EngineFault:
    """Return the fault to raise for an error inside the stream of an answer, which is an object or a text."""
    problem = problem if isinstance(problem, Mapping) else {"message": problem}
    code, message = problem.get("code"), problem.get("message") or problem.get("type")
    words = plain(without_key(str(message), key_of(endpoint))) if message else "it gave no reason"
    error = EngineError(
        f"{endpoint.host} stopped with an error: {words}", hint="Ask again.", details={"host": endpoint.host}
    )
    return EngineFault(error, may_retry=str(code) in {str(status) for status in AGAIN})


def unknown_model(model: str, host: str, served: list[str]) -> UnknownModel:
    names = ", ".join(served[:20]) + (f" and {len(served) - 20} more" if len(served) > 20 else "")
    message = (
        f"{host} has no model {model!r}."
        if model
        else (f"{host} has several models, and this engine names none of them.")
    )
    return UnknownModel(
        message,
        hint=f"The server has: {names}."
        if served
        else ("The server lists no models: start a model on the server, or check the url."),
        details={"host": host, "models": served[:100]},
    )


def plain(text: str) -> str:
    """Return the text as one line without control characters, cut to MAX_SERVER_TEXT characters, for display and
    logs."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_SERVER_TEXT else line[:MAX_SERVER_TEXT] + " ..."


def _details(detail: Any) -> str:
    """Return a summary of FastAPI's list of validation errors, without the request data that it quotes."""
    if not isinstance(detail, list):
        return ""
    lines = []
    for entry in detail[:5]:
        if isinstance(entry, Mapping):
            path = entry.get("loc")
            field = ".".join(map(str, path)) if isinstance(path, list) else ""
            lines.append(f"{field}: {entry.get('msg', '')}")
    return "; ".join(lines)
