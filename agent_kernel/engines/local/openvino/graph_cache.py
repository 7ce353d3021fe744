"""Stores the OpenVINO graph of a GGUF file on disk: building it takes 5 to 15 s, loading it 1 to 2 s.

The directory of a graph is named by the file's identity and the library's version. When a new graph is complete, those
of other versions are removed. A complete graph gets its final name by one rename, so that two processes may build it at
the same time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from agent_kernel.engines.local.backend import Progress
from agent_kernel.engines.local.catalog.derived_cache import identity, publish
from agent_kernel.engines.local.openvino.tokenizer_cache import PROPERTIES, StoredTokenizer

GRAPH = "openvino_model.xml"
SPARE = 1.2
"""Free disk space that is needed to store a graph, as a multiple of the GGUF file's size. With less space, the graph is
not stored."""


class BuiltModel:
    """The stored graph of one model file. ``version`` is the version of openvino-genai."""

    def __init__(self, path: Path, cache_dir: Path, version: str) -> None:
        self._path = path
        self._root = cache_dir / "openvino"
        self._identity = identity(path)
        self._version = version

    @property
    def directory(self) -> Path:
        return self._root / f"{self._identity}-{self._version}"

    def open(self, genai: Any, scheduler: Any, properties: dict[str, Any], progress: Progress) -> tuple[Any, Any]:
        """Return the tokenizer and the pipeline of the model; build and store the graph first if it is not stored.
        Raises the library's RuntimeError for a file that it cannot run."""
        progress("reading the vocabulary", None)
        tokenizer = self._open_tokenizer(genai)
        if (
            self._path.is_file() and not (self.directory / GRAPH).is_file()
        ):  # a directory is a model that was exported already: its graph need not be built
            progress("preparing the model (once)", None)
            self._build(genai, scheduler, properties)
        progress("loading the weights", None)
        # If the graph could not be stored (full disk, no links), it is built for this process only.
        source = self.directory if (self.directory / GRAPH).is_file() else self._path
        return tokenizer, genai.ContinuousBatchingPipeline(str(source), tokenizer, scheduler, "CPU", **properties)

    def _open_tokenizer(self, genai: Any) -> Any:
        if self._path.is_dir():
            return genai.Tokenizer(str(self._path), **PROPERTIES)
        return StoredTokenizer(self._path, self._root, self._version).open(genai)

    def _build(self, genai: Any, scheduler: Any, properties: dict[str, Any]) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self._root).free < self._path.stat().st_size * SPARE:
            return
        with tempfile.TemporaryDirectory(dir=self._root, prefix="building-", ignore_cleanup_errors=True) as temporary:
            link = Path(temporary) / "model.gguf"
            try:
                os.symlink(self._path.absolute(), link)
            except OSError:
                return
            # The library writes the graph beside the file that it loads.
            pipeline = genai.ContinuousBatchingPipeline(
                str(link), scheduler, "CPU", dict(properties) | {"enable_save_ov_model": True}
            )
            del pipeline
            link.unlink()
            self._publish(Path(temporary))

    def _publish(self, temporary: Path) -> None:
        publish(temporary, self.directory)
        for old in self._root.glob(f"{self._identity}-*"):
            if not old.name.startswith(self.directory.name):
                shutil.rmtree(old, ignore_errors=True)


def is_built(path: Path, cache_dir: Path) -> bool:
    """Return whether the cache contains a graph of this file, made by any version of the library."""
    return any((cache_dir / "openvino").glob(f"{identity(path)}-*/{GRAPH}"))
