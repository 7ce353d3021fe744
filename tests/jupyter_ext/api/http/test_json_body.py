"""Tests how invalid bodies are described."""

import json

import pytest

from agent_kernel.core.errors import InvalidRequest
from jupyter_ext.api.anthropic.request import MessagesBody
from jupyter_ext.api.http import json_body


@pytest.mark.parametrize(
    ("content", "described"),
    [
        ([{"type": "nope"}], "messages.0.content.0.type: Input should be one of 'text', 'image', "),
        ([{"type": "text"}], "messages.0.content.0.text.text: Field required"),
        (5, "messages.0.content: Input should be a valid array"),
    ],
    ids=["a block of an unknown type", "a block without its text", "a number"],
)
def test_a_mistake_in_content_that_may_be_text_or_blocks_is_described_once(content: object, described: str) -> None:
    body = {"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    with pytest.raises(InvalidRequest) as refused:
        json_body.parse(MessagesBody, json.dumps(body).encode(), 1 << 20)
    message = str(refused.value)
    assert message.startswith(described)
    assert ";" not in message
