"""Renders a chat template with the sandboxed Jinja of transformers, with which the authors of models test their
templates. No tokenizer is needed.

openvino-genai has its own C++ engine for templates, which starts faster. It is not used, because it adds a tool prompt
of its own to templates without tools, and cannot run every template.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import ChatMessage


class ChatTemplate:
    """A chat template. ``tokens`` are the special tokens to which templates refer by name: ``bos_token``,
    ``eos_token``."""

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
                hint="Install the missing packages with: pip install transformers jinja2",
            ) from error
        rendered, _ = render_jinja_template(
            [[dict(message) for message in messages]],
            tools=[dict(tool) for tool in tools] or None,
            chat_template=self._source,
            add_generation_prompt=True,
            **self._tokens,
        )
        return str(rendered[0])
