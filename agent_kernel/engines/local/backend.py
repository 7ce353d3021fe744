"""The inner seam of the model worker: what a library that runs models must do, and the values it exchanges.

A backend is driven by one thread, which alone calls it (``decoder.py``); it holds no session, no protocol and no text
beyond encode and decode. The server process imports this module too, so it imports no library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

ChatMessage: TypeAlias = Mapping[str, str]
"""``{"role": ..., "content": ...}``, as chat templates take them."""
Finish: TypeAlias = Literal["", "stop", "length", "refused"]
Progress: TypeAlias = Callable[[str, float | None], None]


class ModelFile(Protocol):
    """What the engine must know of a model; the catalog's ``LocalModel`` is one."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path:
        """A GGUF file, complete and verified."""
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
class Decoding:
    """How one request is decoded. ``temperature`` 0 is greedy. ``regex`` binds the whole output. With ``logprob`` the
    log probability of each token comes with it, before the regex has masked anything."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    regex: str | None = None
    logprob: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step gave one request: token ids without the end-of-turn token, and why it ended, if it did.
    ``refused``: the request does not fit into the cache."""

    ids: tuple[int, ...]
    logprob: float | None = None
    finish: Finish = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """``block`` tokens share one cache block, ``blocks`` of them fit (0 = prefixes are not kept)."""

    block: int
    blocks: int
    details: Mapping[str, Any]


class Backend(Protocol):
    def load(self, path: Path, progress: Progress) -> Loaded:
        """Raises ModelMissing or ModelBroken."""
        ...

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The chat template's text, ready for the assistant to go on."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens; bytes of an unfinished character are left out or are U+FFFD."""
        ...

    def submit(self, ids: Sequence[int], decoding: Decoding) -> int:
        """The request's key."""
        ...

    def step(self) -> list[tuple[int, Piece]]:
        """One token for every running request, or one slice of a prompt."""
        ...

    def cancel(self, key: int) -> None:
        """Frees the request's blocks at the next step; unknown keys are ignored."""
        ...

    def running(self) -> int: ...
