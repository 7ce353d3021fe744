"""Stores the OpenVINO graph of a GGUF file on disk: building it takes 5 to 15 s, loading it 1 to 2 s.

The directory of a graph is named by the file's identity and the library's version. When a new graph is complete, those
of other versions are removed. A complete graph gets its final name by one rename, so that two processes may build it at
the same time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.engines.local.backend import Progress
from agent_kernel.engines.local.catalog.derived_cache import identity, publish

GRAPH = "openvino_model.xml"
SPARE = 1.2
"""Free disk space that is needed to store a graph, as a multiple of the GGUF file's size. With less space, the graph is
not stored."""
MANIFEST = "manifest.json"
SOURCE_BYTES = 16 << 20
"""Number of bytes at the beginning of a GGUF file whose digest is stored. These bytes contain the vocabulary, which
takes 6 MB for 150,000 tokens."""
SAMPLE = "def f(x):  # Grüße, 世界 🙂\n    return {'a': [x, 1.5e3]}\n<|im_start|>user\n"
"""Text that a stored tokenizer must encode like the one it was derived from: words, code, spaces, other scripts."""
PROPERTIES = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
"""Options of the library for tokenizers. A tokenizer uses one thread, because waking several threads takes ten times as
long as the work for one token."""


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


# Stores the OpenVINO tokenizer of a GGUF file on disk: the library needs seconds to derive it from the vocabulary,
# and a fraction of a second to load it.
#
# The manifest in the directory of a stored tokenizer has the digests of its files, and the digest of the part of the
# GGUF file from which the tokenizer was derived. A tokenizer is loaded only if all of them match; otherwise it is
# derived again.


FILES = tuple(f"openvino_{part}.{kind}" for part in ("tokenizer", "detokenizer") for kind in ("xml", "bin"))


@dataclass(frozen=True, slots=True)
class StoredTokenizer:
    """The stored tokenizer of one GGUF file. ``version`` is the version of openvino-genai."""

    path: Path
    root: Path
    version: str

    @property
    def directory(self) -> Path:
        return self.root / f"{identity(self.path)}-{self.version}-tokenizer"

    def open(self, genai: Any) -> Any:
        """Return the tokenizer; derive and store it first if it is not stored or if its files are damaged. A tokenizer
        that cannot be stored is derived for this process only. Raises the library's RuntimeError for a file that it
        cannot read."""
        source = _digest(self.path, SOURCE_BYTES)
        if self._is_intact(source):
            with suppress(RuntimeError):  # if the library cannot read its own file, the tokenizer is derived again
                return genai.Tokenizer(str(self.directory), **PROPERTIES)
        shutil.rmtree(self.directory, ignore_errors=True)
        # Storing fails if the disk is full (the library raises RuntimeError), if the cache directory cannot be written,
        # or if the disk has no links. If the library cannot read the model file, the last line raises the error again.
        with suppress(OSError, RuntimeError):
            self.root.mkdir(parents=True, exist_ok=True)
            return self._derive(genai, source)
        return genai.Tokenizer(str(self.path), **PROPERTIES)

    def _is_intact(self, source: str) -> bool:
        """Return whether the stored tokenizer was derived from ``source`` and all its files are as they were stored."""
        try:
            manifest = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))
            return bool(manifest == {"source": source, "files": _digests(self.directory)})
        except (OSError, ValueError):
            return False

    def _derive(self, genai: Any, source: str) -> Any:
        """Derive the tokenizer, and store it if the stored files give the same tokens. Raises OSError or the library's
        RuntimeError if the files cannot be written."""
        with tempfile.TemporaryDirectory(dir=self.root, prefix="tokenizer-", ignore_cleanup_errors=True) as temporary:
            directory = Path(temporary)
            link = directory / "model.gguf"
            os.symlink(self.path.absolute(), link)
            # The library writes the tokenizer beside the file that it loads.
            derived = genai.Tokenizer(str(link), enable_save_ov_model=True, **PROPERTIES)
            link.unlink()
            stored = genai.Tokenizer(temporary, **PROPERTIES)
            if _facts(stored) == _facts(derived):
                manifest = {"source": source, "files": _digests(directory)}
                (directory / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
                publish(directory, self.directory)
            return derived


def _facts(tokenizer: Any) -> tuple[Any, ...]:
    """Return the properties of a tokenizer, and its output for a sample text, so that two tokenizers can be
    compared.
    """
    ids = tokenizer.encode(SAMPLE, add_special_tokens=False).input_ids.data[0].tolist()
    getters = ("get_bos_token", "get_eos_token", "get_eos_token_id", "get_original_chat_template", "get_vocab")
    return (ids, tokenizer.decode(ids), tokenizer.chat_template, *(getattr(tokenizer, name)() for name in getters))


def _digests(directory: Path) -> dict[str, str]:
    return {name: _digest(directory / name) for name in FILES}


def _digest(path: Path, size: int = -1) -> str:
    """Return the SHA-256 of the first ``size`` bytes of a file, or of the whole file."""
    with path.open("rb") as file:
        return hashlib.sha256(file.read(size)).hexdigest()
