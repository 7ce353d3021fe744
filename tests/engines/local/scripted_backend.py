"""A backend that plays prepared answers token by token through a real chat template: deterministic, without a model."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_kernel.core.protocols import Chunk, EngineRequest
from agent_kernel.engines.local.backend import (
    ChatMessage,
    DecodingOptions,
    LoadedModel,
    LoadOptions,
    Picture,
    Progress,
    StepOutput,
)
from agent_kernel.engines.local.decoding.completion import Completer
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.tool_calling.chat_template import ChatTemplate
from agent_kernel.engines.local.tool_calling.tool_protocols import ToolProtocol

BLOCK = 4
SPECIAL = 0x200000
"""Ids of special tokens begin here; every other token is one character, its id the code point."""


class ScriptedBackend:
    """Plays ``answers`` in order. ``submitted`` records each prompt as text with its decoding options. Each of
    ``words`` is one token that decodes to ordinary text.
    """

    def __init__(
        self,
        template: str,
        answers: Iterable[str] = (),
        specials: Sequence[str] = ("<|im_end|>",),
        words: Sequence[str] = (),
    ) -> None:
        self.loaded = LoadedModel(BLOCK, 10_000, {}, template=template)
        self.submitted: list[tuple[str, DecodingOptions]] = []
        self._template = ChatTemplate(template, bos_token="<s>", eos_token=specials[0])
        self._answers = iter(answers)
        self._tokens = [*specials, *words]
        self._hidden = len(specials)
        self._split = re.compile("|".join(map(re.escape, self._tokens)))
        self._playing: dict[int, tuple[list[int], int]] = {}
        self._next = 0

    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        return self.loaded

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return self._template.render(messages, tools)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        at = 0
        for found in self._split.finditer(text):
            ids += [ord(char) for char in text[at : found.start()]]
            ids.append(SPECIAL + self._tokens.index(found[0]))
            at = found.end()
        return ids + [ord(char) for char in text[at:]]

    def decode(self, ids: Sequence[int]) -> str:
        return self.spelled([token for token in ids if not 0 <= token - SPECIAL < self._hidden])

    def spelled(self, ids: Sequence[int]) -> str:
        return "".join(chr(token) if token < SPECIAL else self._tokens[token - SPECIAL] for token in ids)

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        raise NotImplementedError

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        self._next += 1
        self.submitted.append((self.spelled(ids), decoding))
        answer = next(self._answers, None)
        assert answer is not None, f"nothing is written for this prompt: {self.submitted[-1][0]}"
        self._playing[self._next] = (self.encode(answer), decoding.max_tokens)
        return self._next

    def step(self) -> list[tuple[int, StepOutput]]:
        pieces = []
        for key, (ids, room) in list(self._playing.items()):
            finish = "stop" if not ids else "length" if room == 1 else ""
            pieces.append((key, StepOutput(tuple(ids[:1]), finish=finish)))  # type: ignore[arg-type]  # one of Finish
            self._playing[key] = (ids[1:], room - 1)
            if finish:
                del self._playing[key]
        return pieces

    def cancel(self, key: int) -> None:
        self._playing.pop(key, None)

    def running(self) -> int:
        return len(self._playing)

    def usage(self) -> Mapping[str, float]:
        return {}

    def completer(self, context_length: int = 0) -> Completer:
        """Return a completer that runs in the current event loop."""
        return Completer(Decoder(self, _raise), self, self.loaded, context_length)


async def chunks_of(protocol: ToolProtocol, completer: Completer, request: EngineRequest) -> list[Chunk]:
    async with aclosing(_stream(protocol, completer, request)) as stream:
        return [chunk async for chunk in stream]


def _stream(protocol: ToolProtocol, completer: Completer, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
    return protocol.stream(request, completer)


def _raise(error: BaseException) -> None:
    raise error
