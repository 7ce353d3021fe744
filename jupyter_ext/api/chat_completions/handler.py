"""The handler of ``chat/completions``, in the format of OpenAI's clients."""

from __future__ import annotations

from agent_kernel.core.errors import InvalidRequest
from jupyter_ext.api.chat_completions.codec import ChatCodec
from jupyter_ext.api.chat_completions.request import ChatBody, choices_of
from jupyter_ext.api.dialects.handler import OpenAIHandler
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.schemas.operation import FITS, IDEMPOTENCY_KEY, operation
from jupyter_ext.turns.dialect_request import DialectRequest


class ChatCompletionsHandler(OpenAIHandler):
    @guard("execute")
    @operation(
        "openai.types.chat:ChatCompletion",
        body=ChatBody,
        query=(IDEMPOTENCY_KEY,),
        conditions=FITS,
        errors=(404, 409, 422, 502, 507),
        streams=(
            "openai.types.chat:ChatCompletionChunk",
            "jupyter_ext.api.schemas.events:AgentToolCallProgress",
            "jupyter_ext.api.schemas.events:AgentToolApprovalRequired",
        ),
    )
    async def post(self) -> None:
        """Answer a conversation, in the format of OpenAI's Chat Completions API."""
        body = self.parse(ChatBody)
        request = await self._read_request(body)
        first, *further = calls = await self.begin_turns(choices_of(request, body.n or 1))
        codec = ChatCodec(
            body.model,
            first.session,
            turn=first.turn.id,
            further_turns=[call.turn.id for call in further],
            include_usage=body.include_usage,
            extended=body.is_extended,
        )
        await self.answer(calls, codec, streams=body.streams)

    async def _read_request(self, body: ChatBody) -> DialectRequest:
        """Return the request for a turn. Raises InvalidRequest, Unprocessable, and the errors of ``fetch_media``."""
        try:
            request = body.to_turn(await self.fetch_media(body.links))
        except ValueError as error:
            raise InvalidRequest(f"messages: {error}", details={"param": "messages"}) from error
        self.answerable(request)
        return request
