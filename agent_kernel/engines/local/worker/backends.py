"""Finds a backend by its name, and chooses the backend that runs a model. Only the worker imports this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import Backend, LoadOptions
from agent_kernel.engines.local.openvino.backend import OpenVino


def _batched_torch(cache_dir: Path) -> Backend:
    from agent_kernel.engines.local.torch.backend import TorchBackend

    return TorchBackend(cache_dir)


def _single_torch(cache_dir: Path) -> Backend:
    from agent_kernel.engines.local.torch.single_backend import GenerateBackend

    return GenerateBackend(cache_dir)


BACKENDS: Mapping[str, Callable[[Path], Backend]] = MappingProxyType(
    {"openvino": OpenVino, "transformers": _batched_torch, "generate": _single_torch}
)
"""Maps the name of a backend to a function that creates it. The argument of the function is the cache directory. A
backend imports its library only in ``load``."""


def backend_for(path: Path, options: LoadOptions, cache_dir: Path) -> Backend:
    """Return the backend that ``options.backend`` names, or, if that is empty, the backend that fits the model. Raises
    EngineError for an unknown name."""
    name = options.backend or ("transformers" if _wants_torch(path, options) else "openvino")
    if name not in BACKENDS:
        raise EngineError(f"There is no backend {name!r}.", hint=f"Use one of {', '.join(BACKENDS)}.")
    return BACKENDS[name](cache_dir)


def _wants_torch(path: Path, options: LoadOptions) -> bool:
    """Return whether the model needs torch: its weights are safetensors, or the device is not the CPU."""
    return options.device not in ("", "cpu") or (path.is_dir() and any(path.glob("*.safetensors")))
