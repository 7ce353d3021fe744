"""Creates requests for responses, for the tests of their parts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from agent_kernel.core.messages import Message
from jupyter_ext.api.responses.input_items import FetchedInput
from jupyter_ext.api.responses.input_messages import messages_of
from jupyter_ext.api.responses.request import ResponsesBody
from jupyter_ext.turns.dialect_request import DialectRequest

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


def body(**fields: Any) -> ResponsesBody:
    return ResponsesBody.model_validate({"model": "default", "input": "Hi.", **fields})


def turn_request(**fields: Any) -> DialectRequest:
    it = body(**fields)
    return it.to_turn(*messages_of(it.items, FetchedInput()))


def messages_from(
    *items: Any, known: bool = False, alone: bool = False, brought: FetchedInput | None = None
) -> list[Message]:
    return messages_of(body(input=list(items)).items, brought or FetchedInput(), known=known, alone=alone)[0]


def describe_messages(messages: list[Message]) -> list[tuple[str, str, list[str]]]:
    return [(message.role, message.text, [call.name for call in message.calls]) for message in messages]


def refusal_of(**fields: Any) -> str:
    with pytest.raises(ValidationError) as error:
        body(**fields)
    return str(error.value)
