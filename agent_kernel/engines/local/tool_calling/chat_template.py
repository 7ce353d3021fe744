"""Renders a chat template with transformers' sandboxed Jinja, with which authors test their templates. No tokenizer is
needed.

openvino-genai's C++ engine starts faster, but it invents a tool prompt for templates without tools and cannot run every
template.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import ChatMessage


class ChatTemplate:
    """``tokens`` are the special tokens that templates refer to: ``bos_token``, ``eos_token``."""

    def __init__(self, source: str, **tokens: str) -> None:
        self._source = source
        self._tokens = tokens

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Render a prompt for the assistant to continue. Raises EngineError if jinja2 or transformers is missing, and
        any error that the template raises."""
        try:
            # Imported here because it takes half a second, and only templates with tools need it.
            os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
            from transformers.utils.chat_template_utils import render_jinja_template
        except ImportError as error:
            raise EngineError(
                f"Chat templates with tools need transformers: {error}",
                hint="Install it with: pip install transformers jinja2",
            ) from error
        rendered, _ = render_jinja_template(
            [[dict(message) for message in messages]],
            tools=[dict(tool) for tool in tools] or None,
            chat_template=self._source,
            add_generation_prompt=True,
            **self._tokens,
        )
        return str(rendered[0])
