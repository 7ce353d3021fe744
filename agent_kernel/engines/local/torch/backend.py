"""Runs models on torch: in batches if the library supports this for the model, otherwise one request at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_kernel.engines.local.backend import Backend, LoadedModel, LoadOptions, Progress
from agent_kernel.engines.local.torch.batched_backend import Transformers, Unbatchable
from agent_kernel.engines.local.torch.single_backend import GenerateBackend


class TorchBackend:
    """The backend that runs a model on torch. While loading, it decides which of the two backends, batched or single,
    runs the model; the model's ``details`` contain the reason. All other methods are those of the chosen backend."""

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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)
