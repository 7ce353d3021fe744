"""Tests how invalid bodies are described."""

import json

import pytest

from agent_kernel.core.errors import InvalidRequest
from jupyter_ext.api.anthropic.request import MessagesBody
from jupyter_ext.api.http import json_body
from jupyter_ext.api.native.request_schemas import TurnBody


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


@pytest.mark.parametrize(
    ("body", "described"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "The body has more than 100 levels."),
        (b'{"max_tokens": ' + b"9" * 6000 + b"}", "The body is not JSON: a number has too many digits."),
        (b'{"prompt": "a", "' + b"k" * 1_000_000 + b'": 1}', f"{'k' * 80}: Extra inputs are not permitted"),
    ],
    ids=["levels", "digits", "a long name"],
)
def test_a_body_beyond_a_limit_is_described_briefly_and_without_words_of_python(body: bytes, described: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        json_body.parse(TurnBody, body, 32 << 20)
    assert str(refused.value).startswith(described)
    assert len(str(refused.value)) < 300
