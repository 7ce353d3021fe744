"""``chat/completions``, as OpenAI's clients speak it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agent_kernel.request import TurnRequest
from jupyter_ext.dialects.asked import Asked
from jupyter_ext.dialects.chat import ChatCodec
from jupyter_ext.handlers.base import guarded
from jupyter_ext.handlers.carried import MessageBody, carried
from jupyter_ext.handlers.dialect import DialectHandler


class ChatBody(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)
    model: str = ""
    messages: list[MessageBody]
    stream: bool = False
    session_id: str = ""


class ChatCompletionsHandler(DialectHandler):
    @guarded("execute")
    async def post(self) -> None:
        body = self.parse(ChatBody)
        request = TurnRequest(messages=carried(body.messages, 20 << 20))
        call = await self.begun(Asked(body.model, request, session=body.session_id, streams=body.stream))
        await self.answer(call, ChatCodec(body.model, call.session), streams=body.stream)
