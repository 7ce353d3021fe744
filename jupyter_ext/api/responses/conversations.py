"""Handlers of ``conversations``, in the format of OpenAI's clients. A conversation is a session, and its items are the
messages and calls of that session: those of turns, and those that a client adds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, GetPydanticSchema, WrapValidator

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.core.session import Session, SessionKey, SessionUpdate, new_id
from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from jupyter_ext.api.dialects.openai_content import MAX_MESSAGES, check_length
from jupyter_ext.api.dialects.openai_functions import Words
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.responses.handler import INCLUDE, PAGE, ResponsesAgentHandler
from jupyter_ext.api.responses.input_items import AnyItem, Body, ReferenceItem, characters
from jupyter_ext.api.responses.input_messages import PREFIXES
from jupyter_ext.api.responses.request import Metadata
from jupyter_ext.api.schemas.operation import FITS, operation


def _as_sent(items: Any, parse: Callable[[Any], list[AnyItem]]) -> Any:
    """Check the items and return them as the client sent them, with all their fields. Raises ValueError."""
    parsed = parse(items)
    check_length(sum(map(characters, parsed)), "items")
    if any(isinstance(item, ReferenceItem) for item in parsed):
        raise ValueError("send the items themselves, not references to them")
    return items


ParsedItems = Annotated[list[AnyItem], WrapValidator(_as_sent)]
Items = Annotated[
    list[Body], GetPydanticSchema(lambda _, schema_of: schema_of(ParsedItems)), Field(max_length=MAX_MESSAGES)
]
DEFAULTS: Mapping[str, Body] = {
    "function_call": {"arguments": ""},
    "reasoning": {"summary": []},
    "code_interpreter_call": {"code": None, "container_id": "", "outputs": None},
    "web_search_call": {"action": {"type": "search", "query": ""}},
    "input_image": {"detail": "auto", "file_id": None, "image_url": None},
    "output_text": {"annotations": [], "logprobs": []},
}
"""The fields of items and of their parts that a client may leave out when it sends them, but expects in an answer."""
CONVERSATION = "openai.types.conversations:Conversation"
ITEM_LIST = "openai.types.conversations:ConversationItemList"


class ConversationBody(Words):
    items: Items | None = None
    metadata: Metadata | None = None


class MetadataBody(Words):
    metadata: Metadata | None


class ItemsBody(Words):
    items: Annotated[Items, Field(min_length=1)]


class ConversationDeleted(Words):
    id: str
    object: str
    deleted: bool


class ConversationsAgentHandler(ResponsesAgentHandler):
    def session_of(self, key: SessionKey) -> AgentsSession:
        """Return the session as items of the Responses API."""
        runtime = self.services.runtime
        clean = runtime.turn_writer.redactor.message
        return AgentsSession(key.id, runtime.store, namespace=key.namespace, clean=clean)

    async def items(self, key: SessionKey) -> list[dict[str, Any]]:
        stored = await self.session_of(key).get_items()
        return [_complete_item(item, f"{key.id}_{number}") for number, item in enumerate(stored)]

    async def add(self, key: SessionKey, items: Sequence[Body]) -> list[Body]:
        """Add the items to the conversation, with all their fields, and return them as they are stored."""
        added = [_complete_item(item, os.urandom(24).hex()) for item in items]
        async with self.services.revision_locks.change(key, None, "items"):
            await self.session_of(key).add_items(added)
        await self.services.sidecars.touch(key)
        return added

    async def describe(self, key: SessionKey, metadata: Mapping[str, str] | None) -> Session:
        return await self.services.runtime.store.describe(key, SessionUpdate(metadata=metadata or {}))


class ConversationsHandler(ConversationsAgentHandler):
    @guard("write")
    @operation(CONVERSATION, body=ConversationBody, conditions=FITS, errors=(507,))
    async def post(self) -> None:
        """Create a conversation, in the format of OpenAI's Conversations API."""
        body = self.parse(ConversationBody)
        key = SessionKey(self.caller.namespace, new_id("conv").replace("-", "_", 1))
        await self.services.access.claim_id(self.caller, key.id)
        await self.services.runtime.store.create(key)
        session = await self.describe(key, body.metadata)
        await self.add(key, body.items or ())
        self.reply(_resource(session))


class ConversationHandler(ConversationsAgentHandler):
    @guard("read")
    @operation(CONVERSATION, errors=(404,))
    async def get(self, id: str) -> None:
        """Get a conversation, without its items."""
        self.reply(_resource(await self.find_conversation(id)))

    @guard("write")
    @operation(CONVERSATION, body=MetadataBody, errors=(404, 507))
    async def post(self, id: str) -> None:
        """Replace the metadata of a conversation."""
        body = self.parse(MetadataBody)
        self.reply(_resource(await self.describe((await self.find_conversation(id)).key, body.metadata)))

    @guard("write")
    @operation(ConversationDeleted, errors=(404, 409))
    async def delete(self, id: str) -> None:
        """Delete a conversation with its items, its responses and its work directory."""
        key = (await self.find_conversation(id)).key
        async with self.services.revision_locks.change(key, None, "deleted"):
            await self.responses.delete_session(key)
        self.reply({"id": id, "object": "conversation.deleted", "deleted": True})


class ConversationItemsHandler(ConversationsAgentHandler):
    @guard("read")
    @operation(ITEM_LIST, query=(*PAGE, INCLUDE), errors=(404,))
    async def get(self, id: str) -> None:
        """List the items of a conversation.

        The newest item comes first, unless ``order`` is asc.
        """
        self.included_fields()
        page, more = self.page_of(await self.items((await self.find_conversation(id)).key))
        self.reply_items(page, more=more)

    @guard("write")
    @operation(ITEM_LIST, body=ItemsBody, query=(INCLUDE,), conditions=FITS, errors=(404, 409, 507))
    async def post(self, id: str) -> None:
        """Add items to the end of a conversation."""
        self.included_fields()
        body = self.parse(ItemsBody)
        self.reply_items(await self.add((await self.find_conversation(id)).key, body.items))


class ConversationItemHandler(ConversationsAgentHandler):
    @guard("read")
    @operation("openai.types.conversations:ConversationItem", query=(INCLUDE,), errors=(404,))
    async def get(self, id: str, item: str) -> None:
        """Get an item of a conversation."""
        self.included_fields()
        items = await self.items((await self.find_conversation(id)).key)
        self.reply(items[_index(items, item)])

    @guard("write")
    @operation(CONVERSATION, errors=(404, 409), conditions="The item must be the newest of the conversation.")
    async def delete(self, id: str, item: str) -> None:
        """Delete the newest item of a conversation."""
        session = await self.find_conversation(id)
        async with self.services.revision_locks.change(session.key, None, "items"):
            items = await self.items(session.key)
            if _index(items, item) != len(items) - 1:
                raise InvalidRequest("Only the newest item of a conversation can be deleted.")
            await self.session_of(session.key).pop_item()
        await self.services.sidecars.touch(session.key)
        self.reply(_resource(session))


def _resource(session: Session) -> dict[str, Any]:
    metadata = {name: value for name, value in session.metadata.items() if isinstance(value, str)}
    created = int(session.created)
    return {"id": session.key.id, "object": "conversation", "created_at": created, "metadata": metadata}


def _complete_item(item: Mapping[str, Any], unique: str) -> Body:
    """Return an item with all fields that clients expect, among them an id, which contains ``unique`` if the item has
    none."""
    kind = str(item.get("type") or "message")
    whole = _with_defaults({**item, "type": kind, "status": item.get("status") or "completed"})
    whole["id"] = item.get("id") or f"{PREFIXES.get(kind, 'item')}_{unique}"
    if isinstance(item.get("content"), str):
        text = "output_text" if item.get("role") == "assistant" else "input_text"
        whole["content"] = [{"type": text, "text": item["content"]}]
    for name in ("content", "output"):
        if isinstance(whole.get(name), list):
            whole[name] = [_with_defaults(part) for part in whole[name]]
    return whole


def _with_defaults(body: Mapping[str, Any]) -> Body:
    defaults = DEFAULTS.get(str(body.get("type")), {})
    return {**body, **{name: value for name, value in defaults.items() if body.get(name) is None}}


def _index(items: Sequence[Mapping[str, Any]], id: str) -> int:
    """Return the position of an item. Raises NotFound."""
    for number, item in enumerate(items):
        if item["id"] == id:
            return number
    raise NotFound(f"Item with id {id[:100]!r} not found.", details={"param": "item_id"})
