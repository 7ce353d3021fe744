"""Runs models on torch: in batches if the library supports this for the model, otherwise one request at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_kernel.engines.local.backend import (
    Backend,
    ChatMessage,
    DecodingOptions,
    LoadedModel,
    LoadOptions,
    Picture,
    Progress,
    StepOutput,
)
from agent_kernel.engines.local.torch.batched_backend import Transformers, Unbatchable
from agent_kernel.engines.local.torch.single_backend import GenerateBackend


class TorchBackend:
    """The backend that runs a model on torch. While loading, it decides which of the two backends, batched or single,
    runs the model; the model's ``details`` contain the reason."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._chosen: Backend = Transformers(cache_dir)

    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        try:
            return self._chosen.load(path, options, progress)
        except Unbatchable as refused:
            single = self._chosen = GenerateBackend(self._cache_dir)
            loaded = single.adopt(refused.model, options)
            return replace(loaded, details={**loaded.details, "unbatched": str(refused)})

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return self._chosen.render(messages, tools)

    def encode(self, text: str) -> list[int]:
        return self._chosen.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._chosen.decode(ids)

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        return self._chosen.encode_pictures(text, pictures)

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        return self._chosen.submit(ids, decoding, pictures)

    def step(self) -> list[tuple[int, StepOutput]]:
        return self._chosen.step()

    def cancel(self, key: int) -> None:
        self._chosen.cancel(key)

    def running(self) -> int:
        return self._chosen.running()

    def usage(self) -> Mapping[str, float]:
        return self._chosen.usage()
