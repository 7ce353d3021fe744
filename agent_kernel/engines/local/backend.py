"""Defines the interface between the model worker and a library that runs models, and the values that they exchange.

Only one thread calls a backend (``decoder.py``). A backend does not know sessions and tool protocols: it converts
between text and token ids, and generates tokens. The server process imports this module too, so it imports no library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

ChatMessage: TypeAlias = Mapping[str, Any]
"""``{"role": ..., "content": ...}``, as chat templates take it. The content is text; for a model with vision it may
also be a list of parts ``{"type": "text", "text": ...}`` and ``{"type": "image"}``. ``tool_calls`` and ``tool_call_id``
have the form of OpenAI's chat API."""
Finish: TypeAlias = Literal["", "stop", "length", "refused"]
Progress: TypeAlias = Callable[[str, float | None], None]


class ModelFile(Protocol):
    """The properties of a model that the engine uses; the catalog's ``LocalModel`` implements it."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path:
        """The path of a GGUF file, or of a directory in the format in which the model's library saves it. The files are
        complete and verified."""
        ...

    @property
    def protocol(self) -> str:
        """The name of the protocol by which this model calls tools, from ``tool_protocols.TOOL_PROTOCOLS``."""
        ...

    @property
    def context_length(self) -> int:
        """The maximum number of tokens of a prompt and its answer together; 0 if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class OutputGrammar:
    """A pattern that the whole output must match: a regular expression, or an EBNF grammar in xgrammar's notation with
    the rule ``root``. White space in the pattern is significant."""

    kind: Literal["regex", "ebnf"]
    text: str


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """Options for decoding one request. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and
    ``repetition_penalty`` 1 have no effect. ``presence_penalty`` is subtracted once from the logit of each token that
    the answer already contains, ``frequency_penalty`` once for each occurrence. ``logit_bias`` contains pairs (token
    id, number to add to its logit); a backend that does not support it raises InvalidRequest in ``submit``. With
    ``logprob``, each token is returned with its log probability, computed before the grammar's mask is applied."""

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
    """An image for the model: encoded bytes (PNG, JPEG, ...)."""

    mime: str
    data: bytes


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The result of one step for one request. ``ids`` are the new token ids without the end-of-turn token, ``logprobs``
    their log probabilities if requested. ``finish`` states why the request ended, and is empty while it continues.

    If ``finish`` is ``refused``, the request could not run, for the reason in ``error``; if ``error`` is empty, it did
    not fit into the cache. ``reused`` is set in the first output if the library reports how many prompt tokens it took
    from its cache.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    finish: Finish = ""
    reused: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options for loading a model. For a value that is 0 or empty, the backend chooses. ``backend`` is openvino or
    transformers. ``device`` is cpu, cuda, cuda:N, or auto, which spreads the model over all devices. ``precision`` is
    fp32, bf16, fp16, int8 or nf4 (the last two by bitsandbytes). ``cache_gb`` is the size of the KV cache, ``threads``
    the number of CPU threads, and ``max_memory`` the bytes by device for accelerate.

    If ``prefixes`` is false, the cache keeps nothing between requests. At most ``at_once`` requests are decoded at the
    same time; the others wait.
    """

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
    """A model that a backend has loaded. A cache block holds ``block`` tokens, and the cache has ``blocks`` of them; 0
    blocks mean that prefixes are not kept. ``template`` is the source of the chat template, ``architecture`` the model
    type as its library names it, and ``sees`` whether the model accepts pictures. ``context_length`` is the one that
    the model's files state, 0 if they state none. ``details`` are for display."""

    block: int
    blocks: int
    details: Mapping[str, Any]
    template: str = ""
    architecture: str = ""
    context_length: int = 0
    sees: bool = False
    parameters: int = 0
    """The number of weights of the model; 0 if unknown."""
    at_once: int = 0
    """The number of requests that the backend can decode at once; 0 means as many as fit into the cache."""
    cache_tokens: int = 0
    """The number of tokens that fit into the KV cache; 0 means ``block`` times ``blocks``."""
    response_template: Mapping[str, Any] | None = None
    """The tokenizer's declaration of how transformers parses this model's answers, if it has one."""


class Backend(Protocol):
    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        """Load the model. Raises ModelMissing, ModelBroken or EngineError."""
        ...

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the messages rendered by the chat template, ready for the assistant to continue. ``tools`` has the
        form of OpenAI's chat API."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids without special tokens. Bytes of an unfinished character are omitted or become
        U+FFFD."""
        ...

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        """Return the token ids of a rendered prompt, in which each picture replaces its placeholder. Raises EngineError
        for a model without vision."""
        ...

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        """Add a request with the prompt ``ids`` and return its key, by which ``step`` and ``cancel`` identify it."""
        ...

    def step(self) -> list[tuple[int, StepOutput]]:
        """Compute one token for every running request, or one slice of a prompt. Return (key, output) for each request
        that has an output."""
        ...

    def cancel(self, key: int) -> None:
        """Free the request's blocks at the next step. Unknown keys are ignored."""
        ...

    def running(self) -> int: ...

    def usage(self) -> Mapping[str, float]:
        """Return figures for a status display. ``cache_used`` is the share of the blocks that running requests hold,
        from 0 to 1."""
        ...
