"""Handlers of ``responses``, in the format of OpenAI's clients: create, stream, fetch, follow from any event, cancel
and delete responses."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, Field

from agent_kernel.core.errors import InvalidRequest, NotFound, SessionBusy, SessionNotFound
from agent_kernel.core.messages import Media
from agent_kernel.core.net.fetch import FILE, Fetcher
from agent_kernel.core.session import Session, SessionKey
from jupyter_ext.api.dialects.handler import OpenAIHandler, raise_failure
from jupyter_ext.api.dialects.openai_content import MAX_LINKS, MAX_MEDIA, MAX_PICTURES, TOO_MUCH_MEDIA, visible_media
from jupyter_ext.api.dialects.prompt_tokens import estimate_tokens
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.responses.continuation import Continuation, carry_messages, find_continuation, owner_of
from jupyter_ext.api.responses.input_items import MEDIUM, AnyItem, FetchedInput, InputFile, InputImage, parts_of
from jupyter_ext.api.responses.input_messages import has_server_calls, items_to_store, messages_of, with_files
from jupyter_ext.api.responses.live_responses import LiveResponse, LiveResponses, responses_of
from jupyter_ext.api.responses.request import INCLUDABLE, Includable, ResponsesBody
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.api.responses.store import StoredResponse
from jupyter_ext.api.schemas.operation import FITS, IDEMPOTENCY_KEY, Count, Parameter, operation
from jupyter_ext.turns.dialect_request import DialectRequest, SubmittedFile
from jupyter_ext.turns.idempotency import StartedTurn

LISTED = 20
MAX_LISTED = 100
FILE_BYTES = FILE.bytes
"""The maximum bytes of all files of a request that are fetched."""
IMAGES = "message.input_image.image_url"
FILE_NAME = "file"
PAGE = (
    Parameter(
        "limit", f"At most this many items; {LISTED} if it is missing.", Annotated[int, Field(ge=1, le=MAX_LISTED)]
    ),
    Parameter("after", "Return only items after the item with this id."),
    Parameter("order", "asc: the oldest item first; desc (default): the newest.", Literal["asc", "desc"]),
)
"""The query of the routes that list items."""
INCLUDE = Parameter("include", "One of OpenAI's additional fields. It is checked, and has no effect here.", Includable)
"""The query parameter ``include`` of the routes on which it has no effect."""


class Deleted(BaseModel):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ResponsesAgentHandler(OpenAIHandler):
    @property
    def responses(self) -> LiveResponses:
        return responses_of(self.services)

    def page_of(self, items: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Return the part of ``items``, which are in the order of their creation, that the query PAGE asks for, and
        whether more items follow. Raises InvalidRequest."""
        most = self.number("limit", LISTED)
        if most is None or not 1 <= most <= MAX_LISTED:
            raise InvalidRequest(f"limit must be between 1 and {MAX_LISTED}.", details={"param": "limit"})
        order, after = self.get_argument("order", "desc"), self.get_argument("after", "")
        if order not in ("asc", "desc"):
            raise InvalidRequest("order must be asc or desc.", details={"param": "order"})
        items = items if order == "asc" else items[::-1]
        ids = [item["id"] for item in items]
        if after and after not in ids:
            raise InvalidRequest("There is no item with that id.", details={"param": "after"})
        start = ids.index(after) + 1 if after else 0
        return items[start : start + most], start + most < len(items)

    def included_fields(self) -> frozenset[str]:
        """Return the values of the query parameter INCLUDE. Raises InvalidRequest."""
        include = frozenset({*self.get_arguments("include"), *self.get_arguments("include[]")})
        if not include <= INCLUDABLE:
            raise InvalidRequest(
                f"include must be among {', '.join(sorted(INCLUDABLE))}.", details={"param": "include"}
            )
        return include

    def reply_items(self, page: Sequence[Mapping[str, Any]], *, more: bool = False) -> None:
        first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
        self.reply({"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": more})

    async def find_conversation(self, id: str) -> Session:
        """Return the session of a conversation. Raises NotFound, Forbidden."""
        try:
            return await self.services.access.session(self.caller, id)
        except SessionNotFound as error:
            details = {"param": "conversation"}
            raise NotFound(f"Conversation with id {id[:100]!r} not found.", details=details) from error

    async def find_response(self, id: str) -> StoredResponse:
        """Return a response. Raises NotFound, also for a response of another caller."""
        response = await self.responses.find(owner_of(self.caller), id)
        if response is None:
            raise NotFound(f"Response with id {id[:100]!r} not found.", details={"param": "response_id"})
        return response


class ResponsesHandler(ResponsesAgentHandler):
    @guard("execute")
    @operation(
        "openai.types.responses:Response",
        body=ResponsesBody,
        query=(IDEMPOTENCY_KEY,),
        conditions=FITS,
        errors=(404, 409, 422, 502, 507),
        streams=("openai.types.responses:ResponseStreamEvent",),
    )
    async def post(self) -> None:
        """Create a response, in the format of OpenAI's Responses API."""
        body = self.parse(ResponsesBody)
        self.detached = bool(body.background)
        continuation = await self._continuation(body)
        fetched = await self._bring(continuation.items)
        request = await self._turn_request(body, continuation, fetched)
        call = await self._begin(body, continuation, request)
        if call.replayed and body.is_stored:
            stored = await self.responses.again(owner_of(self.caller), call.turn.id)
            if stored is not None:
                await self._replay(stored, body, call)
                return
        live = await self._live(body, continuation, fetched, call)
        if body.background and not body.stream:
            self.reply(live.codec.resource)
            return
        try:
            await self._answer_live(live, streams=bool(body.stream))
        except Exception:  # any exception is raised again; the client does not know the id yet
            await self.responses.drop(live.stored)
            raise

    async def _continuation(self, body: ResponsesBody) -> Continuation:
        """Return what the request continues. Unlike ``session_id``, ``conversation`` names a session that exists."""
        if body.conversation_id:
            await self.find_conversation(body.conversation_id)
        return await find_continuation(self.responses, self.caller, body)

    async def _replay(self, stored: StoredResponse, body: ResponsesBody, call: StartedTurn) -> None:
        """Answer a request that was repeated with its idempotency key: send the response or the error of the first
        request."""
        if body.stream:
            await self._await_decision(call.turn)
            await self.stream(self.responses.stream(stored))
        elif body.background:
            self.reply(await self.responses.resource(stored))
        else:
            ended = await self.responses.await_end(stored)
            raise_failure(call.turn.log.finished)
            self.reply(ended)

    async def _answer_live(self, live: LiveResponse, *, streams: bool) -> None:
        if streams:
            await self._await_decision(live.turn)
            await self.stream(live.follow())
            return
        await live.ended.wait()
        raise_failure(live.turn.log.finished)
        if not self._gone:
            self.reply(live.codec.resource)

    async def _turn_request(
        self, body: ResponsesBody, continuation: Continuation, fetched: FetchedInput
    ) -> DialectRequest:
        try:
            request = await asyncio.to_thread(_read, body, continuation, fetched)
        except ValueError as error:
            raise InvalidRequest(f"input: {error}", details={"param": "input"}) from error
        self.answerable(request)
        if continuation.after and not body.is_stored:
            return await self._elsewhere(request, continuation)
        return request

    async def _elsewhere(self, dialect_request: DialectRequest, continuation: Continuation) -> DialectRequest:
        """Return the request for a new session that begins with the previous conversation."""
        key = SessionKey(self.caller.namespace, continuation.session)
        messages = await carry_messages(
            self.services.runtime.store,
            key,
            continuation.after,
            dialect_request.own_messages or dialect_request.request.messages,
        )
        request = dataclasses.replace(dialect_request.request, messages=tuple(messages), after="", history="replay")
        return dataclasses.replace(dialect_request, request=request, session="", own_messages=())

    async def _begin(
        self, body: ResponsesBody, continuation: Continuation, dialect_request: DialectRequest
    ) -> StartedTurn:
        """Start the turn. If the session is busy, the turn starts in a new session with a copy of the conversation,
        provided that the request uses no tools of the server and names no session. Otherwise, if the session was only
        found through items of the input, the turn starts without that session. In all other cases raises
        SessionBusy."""
        try:
            return await self.begin_turn(dialect_request)
        except SessionBusy:
            if continuation.after and dialect_request.server_tools == () and not body.session_id:
                return await self.begin_turn(await self._elsewhere(dialect_request, continuation))
            if continuation.named or not dialect_request.session:
                raise
        return await self.begin_turn(dataclasses.replace(dialect_request, session=""))

    async def _live(
        self, body: ResponsesBody, continuation: Continuation, fetched: FetchedInput, call: StartedTurn
    ) -> LiveResponse:
        redactor, id = self.services.runtime.turn_writer.redactor, response_id(self.caller.namespace, call.turn.id)
        facts = ResponseFacts(
            id,
            body.model,
            call.session,
            background=bool(body.background),
            namespaces=body.namespaces,
            include=body.wanted,
            shell=body.shell,
            reports=body.is_extended,
        )

        def redact() -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
            items = with_files(items_to_store(continuation.items, facts.stem, fetched), call.turn.spec.request.inputs)
            return redactor.value(body.echo), redactor.value(items)

        echo, items = await asyncio.to_thread(redact)
        echoed = dataclasses.replace(facts, echo=echo)
        stored = StoredResponse(owner_of(self.caller), call.turn.id, echoed, items)
        is_kept = body.is_stored and not call.replayed
        return await self.responses.begin(stored, call.turn, kept=is_kept, streams=bool(body.stream))

    async def _bring(self, items: Sequence[AnyItem]) -> FetchedInput:
        """Fetch the pictures and files to which the request refers. Raises InvalidRequest, Forbidden, LocalOnly,
        FetchFailed, FileNotFound."""
        parts = list(parts_of(items))
        links = list(dict.fromkeys(part.link for part in parts if isinstance(part, InputImage) and part.link))
        urls = {part.file_url: part for part in parts if isinstance(part, InputFile) and part.file_url}
        if len(links) + len(urls) > MAX_LINKS:
            raise InvalidRequest(f"A request can have at most {MAX_LINKS} pictures and files to fetch.")
        ids = list(dict.fromkeys(part.file_id for part in parts if isinstance(part, InputImage) and part.file_id))
        if len(ids) > MAX_PICTURES:
            raise InvalidRequest(
                f"input: a request can have at most {MAX_PICTURES} pictures", details={"param": "input"}
            )
        pictures = await self.fetch_media(links)
        left = MAX_MEDIA - sum(picture.size for picture in pictures.values())
        for file_id in ids:
            pictures[file_id] = await self._picture(file_id, left)
            left -= pictures[file_id].size
        return FetchedInput(pictures, await self._files(urls))

    async def _files(self, parts: Mapping[str, InputFile]) -> dict[str, SubmittedFile]:
        """Fetch the files one after the other, so that all of them together stay within the limit."""
        fetcher, left = Fetcher(self.services.runtime.guard, self.services.runtime.egress), FILE_BYTES
        files: dict[str, SubmittedFile] = {}
        for url, part in parts.items():
            got = await fetcher.get(url, dataclasses.replace(FILE, bytes=left), purpose="a file of the request")
            left -= len(got.data)
            name = part.filename or unquote(PurePosixPath(urlsplit(got.url).path).name) or FILE_NAME
            files[url] = SubmittedFile(name=name, mime=got.mime, data=got.data)
        return files

    async def _picture(self, file_id: str, max_bytes: int) -> Media:
        """Return a picture from an uploaded file or from a file that a tool made. A picture of more than ``max_bytes``
        bytes is not read."""
        stored = await self.services.turn_inputs.find(self.caller, file_id)
        if stored is None:
            raise InvalidRequest(f"There is no file {file_id[:80]!r}.", details={"param": "input"})
        if stored.file.size > MAX_MEDIA:
            raise InvalidRequest(f"A picture can have at most {MAX_MEDIA >> 20} MiB.", details={"param": "input"})
        if stored.file.size > max_bytes:
            raise InvalidRequest(f"input: {TOO_MUCH_MEDIA}", details={"param": "input"})
        data = await stored.read()
        try:
            return visible_media(stored.file.mime, data)
        except ValueError as error:
            raise InvalidRequest(f"input: {error}", details={"param": "input"}) from error


def _read(body: ResponsesBody, continuation: Continuation, fetched: FetchedInput) -> DialectRequest:
    """Return the request for a turn. For a session that does not have the calls of server tools, the request includes
    them. Raises ValueError, Unprocessable."""
    items, alone, names = continuation.items, continuation.named, continuation.names
    messages, files = messages_of(items, fetched, alone=alone, names=names)
    spoken = (
        messages_of(items, fetched, known=True, alone=alone, names=names)[0] if has_server_calls(items) else messages
    )
    return body.to_turn(messages, files, session=continuation.session, after=continuation.after, spoken=spoken)


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"]
    input_tokens: int
    estimated: Literal[True]


class InputTokensHandler(ResponsesHandler):
    """Returns an estimate of the token count. An exact count would require loading the model."""

    @guard("execute")
    @operation(InputTokens, body=ResponsesBody, conditions=FITS, errors=(404, 409, 422, 502))
    async def post(self) -> None:
        """Estimate the number of input tokens of a request for a response, with the conversation that it continues."""
        body = self.parse(ResponsesBody)
        continuation = await self._continuation(body)
        asked = await self._turn_request(body, continuation, await self._bring(continuation.items))
        self.check_model(asked)
        messages, store = asked.request.messages, self.services.runtime.store
        if asked.session and continuation.after:
            key = SessionKey(self.caller.namespace, asked.session)
            messages = tuple(await carry_messages(store, key, continuation.after, messages))
        elif asked.session and await self.services.access.claim_id(self.caller, asked.session) is False:
            stored = await store.latest(SessionKey(self.caller.namespace, asked.session), failed=False)
            messages = (*(item.message for item in stored), *messages)
        self.reply({"object": "response.input_tokens", **estimate_tokens(messages, asked.request.functions)})


class ResponseHandler(ResponsesAgentHandler):
    @guard("read")
    @operation(
        "openai.types.responses:Response",
        query=(
            Parameter("stream", "true: return the events of the response instead.", bool),
            Parameter("starting_after", "Return only events after this number.", Count),
            INCLUDE,
        ),
        errors=(404,),
        streams=("openai.types.responses:ResponseStreamEvent",),
    )
    async def get(self, id: str) -> None:
        """Get a response in its present state, or its events.

        With ``stream``, its events after number ``starting_after`` are sent.
        """
        self.included_fields()
        stored = await self.find_response(id)
        if self.get_argument("stream", "").lower() not in ("true", "1"):
            self.reply(await self.responses.resource(stored))
            return
        after = self.number("starting_after")
        await self.stream(self.responses.stream(stored, -1 if after is None else after))

    @guard("write")
    @operation(Deleted, errors=(404,))
    async def delete(self, id: str) -> None:
        """Delete a response, and stop it if it is running. Its session is kept if it is listed."""
        await self.responses.delete(await self.find_response(id))
        self.reply({"id": id, "object": "response", "deleted": True})


class ResponseCancelHandler(ResponsesAgentHandler):
    @guard("execute")
    @operation("openai.types.responses:Response", errors=(404, 409))
    async def post(self, id: str) -> None:
        """Cancel a response; a response that has ended does not change."""
        self.reply(await self.responses.cancel(await self.find_response(id)))


class InputItemsHandler(ResponsesAgentHandler):
    @guard("read")
    @operation(
        "openai.types.responses:ResponseItemList",
        query=(*PAGE, Parameter("include", f"{IMAGES}: include the bytes of images.", Includable)),
        errors=(404,),
    )
    async def get(self, id: str) -> None:
        """List the input items of a response.

        The newest item comes first, unless ``order`` is asc.
        """
        stored = await self.find_response(id)
        include = self.included_fields()
        page, more = self.page_of(stored.input)
        shown = [await self._item_with_pictures(stored.key, item, images=IMAGES in include) for item in page]
        self.reply_items(shown, more=more)

    async def _item_with_pictures(self, key: SessionKey, item: Mapping[str, Any], *, images: bool) -> Mapping[str, Any]:
        """Return the item, with the bytes of its pictures if ``images`` is set. The session stores these bytes."""
        name = "content" if "content" in item else "output"
        if not isinstance(item.get(name), list):
            return item
        return {**item, name: [await self._part(key, part, images=images) for part in item[name]]}

    async def _part(self, key: SessionKey, part: Mapping[str, Any], *, images: bool) -> Mapping[str, Any]:
        medium = part.get(MEDIUM)
        if medium is None:
            return part
        data = await self.services.runtime.store.blob(key, medium["hash"]) if images else None
        url = f"data:{medium['mime']};base64,{base64.b64encode(data).decode()}" if data else None
        return {**{name: value for name, value in part.items() if name != MEDIUM}, "image_url": url}
