"""Handlers of ``messages`` and ``messages/count_tokens``, in the format of Anthropic's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import (
    AgentKernelError,
    ContextOverflow,
    FileNotFound,
    FileTooLarge,
    InvalidRequest,
    NotFound,
    from_json,
)
from agent_kernel.core.events import TurnFinished
from agent_kernel.core.net.fetch import FetchLimits, FetchResult
from agent_kernel.core.protocols import OutputFormat, Sampling
from agent_kernel.core.session import new_id
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.sandbox.host.pool import LinuxSandbox
from jupyter_ext.api.anthropic.codec import PING, Container, MessagesCodec, Thinking
from jupyter_ext.api.anthropic.conversation import AnthropicConversation, Source, conversation, sources
from jupyter_ext.api.anthropic.message_threads import MessageThread, threads_of
from jupyter_ext.api.anthropic.request import CountBody, MessagesBody, PromptBody
from jupyter_ext.api.anthropic.tools import tools_of
from jupyter_ext.api.dialects import anthropic_errors
from jupyter_ext.api.dialects.handler import DialectHandler
from jupyter_ext.api.dialects.openai_content import MAX_MEDIA, TOO_MUCH_MEDIA
from jupyter_ext.api.dialects.prompt_tokens import estimate_tokens
from jupyter_ext.api.dialects.request_extensions import require_file_tools
from jupyter_ext.api.http.error_status import status_of
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.schemas.errors import AnthropicError
from jupyter_ext.api.schemas.operation import FITS, IDEMPOTENCY_KEY, operation
from jupyter_ext.turns.dialect_request import AGENT, DialectRequest, SubmittedFile
from jupyter_ext.turns.ephemeral_sessions import IDLE_S, NAMED, is_ephemeral
from jupyter_ext.turns.idempotency import StartedTurn

FETCHED = FetchLimits(total_s=30.0, bytes=MAX_MEDIA)
CODE_HINT = "Use the model agent/NAME, or a tool code_execution."


class AnthropicHandler(DialectHandler):
    """Base class of the handlers of Anthropic's API. It sends errors in Anthropic's format."""

    error_shape = AnthropicError
    unasked = InvalidRequest
    keep_alive = PING

    def begin(self) -> None:
        super().begin()
        self.set_header("request-id", self.request_id)

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        self.set_header("request-id", self.request_id)
        return anthropic_errors.body(status, error, self.request_id)

    def refuse(self, error: AgentKernelError, status: int) -> None:
        """Send an error. As in Anthropic's API, a prompt that is too long is an invalid request."""
        super().refuse(error, 400 if isinstance(error, ContextOverflow) else status)

    def failure_body(self, end: TurnFinished) -> Mapping[str, Any]:
        error = from_json(end.error or {})
        status = 400 if isinstance(error, ContextOverflow) else status_of(error)
        return anthropic_errors.body(status, error.to_json(), self.request_id)

    # ------------------------------------------------------------------------------------------------ fetching sources

    async def read_conversation(self, body: PromptBody) -> AnthropicConversation:
        """Convert the conversation, after fetching the content to which it refers. Raises InvalidRequest, also for a
        source that cannot be fetched; FileNotFound, Forbidden, LocalOnly."""
        media_sources = sources(body)
        return await asyncio.to_thread(
            conversation, body, await self._fetch_all(media_sources) if media_sources else {}
        )

    async def _fetch_all(self, wanted: Sequence[Source]) -> dict[Source, SubmittedFile]:
        """Fetch all sources, at most MAX_MEDIA bytes together. A file larger than the remaining bytes is not read."""
        urls = [source for source in wanted if source.kind == "url"]
        got = await self.fetch([url.name for url in urls], FETCHED, purpose="a source of a message")
        files = {url: _to_submitted(fetched) for url, fetched in zip(urls, got, strict=True)}
        left = MAX_MEDIA - sum(len(fetched.data) for fetched in got)
        for source in wanted:
            if source.kind == "file":
                files[source] = await self._uploaded_file(source.name, left)
                left -= len(files[source].data)
        return files

    async def _uploaded_file(self, id: str, max_bytes: int) -> SubmittedFile:
        """Return a file of the caller, of at most ``max_bytes`` bytes."""
        upload = await self.services.turn_inputs.find(self.caller, id)
        if upload is None:
            raise FileNotFound(f"There is no file {id[:80]!r}.", details={"file": id[:200]})
        if upload.file.size > MAX_MEDIA:
            raise FileTooLarge(f"A picture of a message can have at most {MAX_MEDIA >> 20} MiB.")
        if upload.file.size > max_bytes:
            raise InvalidRequest(f"messages: {TOO_MUCH_MEDIA}")
        return SubmittedFile(name=upload.file.name, mime=upload.file.mime, data=await upload.read())


def _to_submitted(fetched: FetchResult) -> SubmittedFile:
    name = fetched.url.partition("?")[0].rstrip("/").rpartition("/")[2]
    return SubmittedFile(name=name[:100], mime=fetched.mime, data=fetched.data)


class MessagesHandler(AnthropicHandler):
    @guard("execute")
    @operation(
        "anthropic.types:Message",
        body=MessagesBody,
        query=(IDEMPOTENCY_KEY,),
        conditions=FITS,
        errors=(404, 409, 410, 422, 502, 507),
        streams=("anthropic.types:RawMessageStreamEvent",),
    )
    async def post(self) -> None:
        """Answer a conversation, in the format of Anthropic's Messages API."""
        body = self.parse(MessagesBody)
        thread = await self._thread(body) if body.continues else None
        if thread is not None:
            body = body.model_copy(update={"system": thread.system, "tools": thread.tools})
        request = self._turn_request(body, await self.read_conversation(body), thread)
        self.answerable(request)
        call = await self.begin_turn(request)
        codec = MessagesCodec(
            body.model,
            call.session,
            refused=self.failure_body,
            turn=call.turn.id,
            container=self._container(call),
            thinking=thinking_options(body),
            reports=body.is_extended,
        )
        if body.thread is not None:
            self._keep(codec.id, call, body)
        await self.answer([call], codec, streams=bool(body.stream))

    def _turn_request(
        self, body: MessagesBody, conversation: AnthropicConversation, thread: MessageThread | None
    ) -> DialectRequest:
        """Return the request for the turn. A request that starts a message thread uses the session that it names, or
        else a new one; a request that continues ``thread`` uses the thread's session."""
        if thread is not None:
            return build_turn(body, conversation, session=thread.key.id, after=thread.turn)
        named = body.session_id or body.container_id
        session = NAMED + new_id("session") if body.thread is not None and not named else ""
        return build_turn(body, conversation, session=session)

    async def _thread(self, body: MessagesBody) -> MessageThread:
        """Return the thread that the request continues. Raises NotFound with Anthropic's message, after which
        Anthropic's clients send the whole conversation."""
        thread = threads_of(self.services).get(self.caller.namespace, body.continues)
        if thread is None or await self.services.runtime.store.info(thread.key) is None:
            raise NotFound("There is no such thread, or it has expired.", details={"error_code": "thread_not_found"})
        return thread

    def _keep(self, message: str, call: StartedTurn, body: MessagesBody) -> None:
        chars = len(body.instructions) + sum(len(tool.model_dump_json()) for tool in body.tools or ())
        thread = MessageThread(call.turn.spec.key, call.turn.id, body.system, body.tools, chars)
        threads_of(self.services).keep(message, thread)

    def _container(self, call: StartedTurn) -> Container:
        id, sandbox = call.turn.spec.key.id, self.services.runtime.sandbox
        idle_s = sandbox.policy.idle_s if isinstance(sandbox, LinuxSandbox) else IDLE_S
        return Container(id, min(idle_s, IDLE_S) if is_ephemeral(id) else idle_s)


class CountTokensHandler(AnthropicHandler):
    """Returns an estimate of the token count. An exact count would require loading the model."""

    @guard("execute")
    @operation("anthropic.types:MessageTokensCount", body=CountBody, conditions=FITS, errors=(404, 409, 422, 502))
    async def post(self) -> None:
        """Estimate the number of tokens of a conversation."""
        body = self.parse(CountBody)
        agent = body.model.startswith(AGENT)
        turn_conversation = await self.read_conversation(body)
        self.check_model(DialectRequest(body.model, TurnRequest()))
        self.reply(estimate_tokens(turn_conversation.messages, tools_of(body, agent=agent).functions))


# Converts the body of ``messages`` into a request for a turn. The functions have no side effects.


def build_turn(
    body: MessagesBody, conversation: AnthropicConversation, *, session: str = "", after: str = ""
) -> DialectRequest:
    """Return the request for a turn. ``session`` is the session of the request's thread, ``after`` the turn in it that
    the request follows. Raises InvalidRequest for contradictory fields."""
    tools = tools_of(body, agent=body.model.startswith(AGENT))
    groups = (*tools.groups, *(("files",) if conversation.files and not tools.silent else ()))
    whole = DialectRequest(
        body.model,
        TurnRequest(
            messages=conversation.messages,
            permission=body.permission,
            sampling=sampling(body),
            max_tool_rounds=0 if tools.silent else body.max_tool_rounds,
            tool_choice=tools.choice,
            parallel_calls=tools.parallel,
            output=OutputFormat("json_schema", body.format.schema_) if body.format else None,
            outputs=tuple(file.wanted for file in body.files or ()),
            web=tools.web,
            skills=tools.skills,
            functions=tools.functions,
            after=after,
        ),
        groups=groups,
        session=session or body.session_id or body.container_id,
        files=conversation.files,
        streams=bool(body.stream),
        own_messages=conversation.spoken if conversation.spoken != conversation.messages else (),
    )
    return require_file_tools(whole, InvalidRequest, hint=CODE_HINT, details=None)


def sampling(body: MessagesBody) -> Sampling:
    """Return the sampling options. A ``top_p`` of 0 always selects the most likely token; a ``top_k`` of 0 means no
    limit."""
    greedy = body.top_p == 0
    return Sampling(
        temperature=body.temperature,
        top_p=None if greedy else body.top_p,
        top_k=1 if greedy else body.top_k or None,
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences or ()),
    )


def thinking_options(body: MessagesBody) -> Thinking:
    """Return how the response shows the model's reasoning. This has no effect on whether the model reasons."""
    option = body.thinking
    if option is None:
        return "shown"
    return "hidden" if option.type == "disabled" else "omitted" if option.display == "omitted" else "shown"
