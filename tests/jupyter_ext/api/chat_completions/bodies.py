"""Bodies of chat/completions for tests, and what the server makes of them: a request or an error."""

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from jupyter_ext.api.chat_completions.request import ChatBody
from jupyter_ext.api.dialects.openai_validation import describe_mistake
from jupyter_ext.turns.dialect_request import DialectRequest

HI = {"role": "user", "content": "hi"}
PNG = b"\x89PNG..."
DATA = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def turn_request(**body: Any) -> DialectRequest:
    links = body.pop("links", {})
    return ChatBody.model_validate({"messages": [HI], **body}).to_turn(links)


def refusal_of(**body: Any) -> tuple[str, str | None]:
    """Return the error message and the field that it names."""
    sent = {"messages": [HI], **body}
    with pytest.raises(ValidationError) as raised:
        ChatBody.model_validate(sent)
    return describe_mistake(raised.value, sent, ChatBody)


def one(*parts: Any, role: str = "user", **more: Any) -> list[dict[str, Any]]:
    return [{"role": role, "content": list(parts), **more}]
