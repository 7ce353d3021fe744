"""Converts a GGUF file to bfloat16 safetensors and keeps them on disk. transformers takes 20 to 60 s to read a GGUF
file at every load, and one or two seconds to read the converted files.

The directory is named by the file's identity. It gets its final name by one rename when it is complete, so that no
reader sees an incomplete one. Two processes may convert the same file at the same time.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import Progress
from agent_kernel.engines.local.catalog.derived_cache import identity, publish
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.pull_stages import megabytes

CONFIG = "config.json"
GROWTH = 4.5
"""Largest size of the converted files as a multiple of the GGUF file: a 4-bit file has 4.5 bits per weight, the
converted files have 16."""


class ConvertedModel:
    def __init__(self, path: Path, cache_dir: Path) -> None:
        self._path = path
        self._root = cache_dir / "transformers"
        self._identity = identity(path)

    @property
    def directory(self) -> Path:
        return self._root / self._identity

    def open(self, torch: Any, transformers: Any, progress: Progress) -> Path:
        """Return the directory of the converted files, after converting the GGUF file if necessary. Raises ModelBroken
        (not a GGUF file) or EngineError (architecture, disk space)."""
        if not (self.directory / CONFIG).is_file():
            read_header(self._path)
            progress("converting the model (once)", None)
            self._convert(torch, transformers)
        return self.directory

    def _convert(self, torch: Any, transformers: Any) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        needed, free = int(self._path.stat().st_size * GROWTH), shutil.disk_usage(self._root).free
        if free < needed:
            raise EngineError(
                f"Converting the model may need {megabytes(needed)} of disk; {self._root} has {megabytes(free)}.",
                hint="Free some space, or set the cache directory to another disk.",
            )
        source = {"gguf_file": self._path.name, "local_files_only": True, "trust_remote_code": False}
        folder = str(self._path.parent)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **source)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **source)
        _as_plain(torch, model)
        with tempfile.TemporaryDirectory(dir=self._root, prefix="converting-", ignore_cleanup_errors=True) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            publish(Path(temporary), self.directory)


def _as_plain(torch: Any, model: Any) -> None:
    """Remove the attributes that mark a model as quantised, because the library refuses to save such a model. If the
    output layer equals the embedding, tie the two, because converters store these weights twice."""
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is not embedding.weight and torch.equal(head.weight, embedding.weight):
        model.config.tie_word_embeddings = True
        model.tie_weights()
