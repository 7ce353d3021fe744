"""The inner seam of the model worker: what a library that runs models must do, and the values it exchanges.

A backend is driven by one thread, which alone calls it (``decoder.py``); it holds no session, no protocol and no text
beyond encode and decode. The server process imports this module too, so it imports no library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

ChatMessage: TypeAlias = Mapping[str, Any]
"""``{"role": ..., "content": ...}``, as chat templates take them: content is text, or parts ``{"type": "text", "text":
...}`` and ``{"type": "image"}`` for models that see; ``tool_calls`` and ``tool_call_id`` as OpenAI's chat has them."""
Finish: TypeAlias = Literal["", "stop", "length", "refused"]
Progress: TypeAlias = Callable[[str, float | None], None]


class ModelFile(Protocol):
    """What the engine must know of a model; the catalog's ``LocalModel`` is one."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path:
        """A GGUF file, or a directory with a model as its library saves it; complete and verified."""
        ...

    @property
    def protocol(self) -> str:
        """How this model calls tools: a name in ``tool_protocol.PROTOCOLS``."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens the model can hold, 0 = unknown."""
        ...


@dataclass(frozen=True, slots=True)
class OutputGrammar:
    """What the whole output must match: a regular expression, or an EBNF grammar with the rule ``root`` in xgrammar's
    notation. White space in it is exact."""

    kind: Literal["regex", "ebnf"]
    text: str


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How one request is decoded. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and
    ``repetition_penalty`` 1 do nothing. ``presence_penalty`` is taken off the logit of each token that the answer has
    already, ``frequency_penalty`` once for each time; ``logit_bias`` are (token id, number to add). Where a backend can
    not add it, ``submit`` raises InvalidRequest. With ``logprob`` the log probability of each token comes with it,
    before the grammar has masked anything."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    grammar: OutputGrammar | None = None
    logprob: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that the model is shown: encoded bytes (PNG, JPEG, ...)."""

    mime: str
    data: bytes


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step gave one request: token ids without the end-of-turn token, their log probabilities if asked for,
    and why it ended, if it did. ``refused``: it could not run, for the reason in ``error``, else since it does not fit
    into the cache. ``reused`` comes with the first piece where the library tells how many prompt tokens it took from
    its cache."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    finish: Finish = ""
    reused: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded; the zero value of each means: decided here. ``backend`` is openvino or transformers,
    ``device`` cpu, cuda, cuda:N or auto (spread over what there is), ``precision`` fp32, bf16, fp16, int8 or nf4
    (bitsandbytes), ``cache_gb`` the KV cache, ``threads`` of the CPU, ``max_memory`` bytes by device for accelerate.
    ``prefixes`` off: nothing is kept between requests. ``at_once`` requests decode, the others wait."""

    backend: str = ""
    device: str = ""
    precision: str = ""
    cache_gb: float = 0.0
    threads: int = 0
    max_memory: Mapping[str, int] = field(default_factory=dict)
    prefixes: bool = True
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """``block`` tokens share one cache block, ``blocks`` of them fit (0 = prefixes are not kept). ``template`` is the
    chat template's source, ``architecture`` the model type as its library names it, ``sees`` whether it takes pictures;
    ``context_length`` as the model itself says (0 = it does not); ``details`` are for people."""

    block: int
    blocks: int
    details: Mapping[str, Any]
    template: str = ""
    architecture: str = ""
    context_length: int = 0
    sees: bool = False
    parameters: int = 0
    """Weights of the model, 0 = unknown."""
    at_once: int = 0
    """Requests that it can decode at once, 0 = as many as fit."""
    cache_tokens: int = 0
    """Tokens that fit into the KV cache, 0 = ``block`` times ``blocks``."""
    response_template: Mapping[str, Any] | None = None
    """How transformers reads this model's answers, where its tokenizer says so."""


class Backend(Protocol):
    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        """Raises ModelMissing, ModelBroken or EngineError."""
        ...

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The chat template's text, ready for the assistant to go on. ``tools`` as OpenAI's chat has them."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens; bytes of an unfinished character are left out or are U+FFFD."""
        ...

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        """Ids of a rendered prompt with each picture's place in it filled. Raises EngineError where nothing sees."""
        ...

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        """The request's key."""
        ...

    def step(self) -> list[tuple[int, StepOutput]]:
        """One token for every running request, or one slice of a prompt."""
        ...

    def cancel(self, key: int) -> None:
        """Frees the request's blocks at the next step; unknown keys are ignored."""
        ...

    def running(self) -> int: ...

    def usage(self) -> Mapping[str, float]:
        """What a status shows: ``cache_used`` 0..1 of the blocks that running requests hold, and what else is known."""
        ...
