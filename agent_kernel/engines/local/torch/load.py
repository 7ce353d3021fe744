"""Loads a model with transformers and torch: its class, weights, precision and device.

``batched_backend.py`` or ``single_backend.py`` then runs it. Nothing is downloaded and no code of a model is run: only
local safetensors files are loaded, and ``trust_remote_code`` is never set.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agent_kernel.core.errors import (
    AgentKernelError,
    EngineError,
    ModelBroken,
    ModelMissing,
    ModelUnsupported,
    OutOfMemory,
)
from agent_kernel.engines.local.backend import ChatMessage, LoadOptions, Progress
from agent_kernel.engines.local.catalog.derived_cache import identity, publish
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.pull_stages import megabytes

SETUP = "Install it with: agent-kernel model setup gpu"
PRECISIONS: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
QUANTISED = ("int8", "nf4")
WEIGHTS = "*.safetensors"
PROBE_ROWS = 128
PROBE_RUNS = 7
_NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory", "Cannot allocate memory")
"""Texts in RuntimeErrors and OSErrors by which the libraries report that memory ran out."""
CONFIG = "config.json"
GROWTH = 4.5
"""Largest size of the converted files as a multiple of the GGUF file: a 4-bit file has 4.5 bits per weight, the
converted files have 16."""
NAMED_IN = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
VIDEO = "video_processor"


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A model in memory, in ``eval`` mode. ``processor`` is set if the model accepts pictures. ``device`` is the device
    of its inputs (cpu, cuda:0). ``dtype`` is the torch name of the type of its activations (bfloat16, float16,
    float32). ``context_length`` is in tokens, 0 if the model does not state one. ``details`` are for display."""

    model: Any
    tokenizer: Any
    processor: Any | None
    device: str
    dtype: str
    details: Mapping[str, Any]
    architecture: str
    context_length: int

    @property
    def template(self) -> str:
        """The source of the chat template, empty if there is none."""
        source = (self.processor and self.processor.chat_template) or self.tokenizer.chat_template
        if isinstance(source, dict):
            source = source.get("default", "")
        return str(source or "")

    @property
    def parameters(self) -> int:
        """The number of weights. For quantised layers, it is their number before packing."""
        return int(self.model.num_parameters())

    @property
    def response_template(self) -> Mapping[str, Any] | None:
        """The tokenizer's declaration of how transformers parses this model's answers, if it has one."""
        template = getattr(self.tokenizer, "response_template", None)
        return template if isinstance(template, Mapping) else None

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the messages rendered by the chat template. Raises EngineError if the model has none."""
        if not self.template:
            raise EngineError("This model has no chat template.", hint="Choose an instruction-tuned model.")
        chat, schemas = [dict(message) for message in messages], [dict(tool) for tool in tools] or None
        template = self.tokenizer.apply_chat_template
        return str(template(chat, tools=schemas, add_generation_prompt=True, tokenize=False))

    def encode(self, text: str) -> list[int]:
        # The special tokens at the beginning of a prompt come from the chat template.
        return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end a turn, from the generation config and the tokenizer."""
        configured = self.model.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(int(token) for token in [*ids, self.tokenizer.eos_token_id] if token is not None)


def load_model(path: Path, options: LoadOptions, cache_dir: Path, progress: Progress) -> TorchModel:
    """Load a directory as ``save_pretrained`` writes it, or a GGUF file, which is converted once.

    Without ``options.precision``, this function chooses the precision: on CPUs bfloat16 unless a test shows that
    float32 is faster there (no AMX, no AVX512-bf16), on CUDA bfloat16 if the device supports it, otherwise float16. The
    precisions ``int8`` and ``nf4`` use bitsandbytes and save memory, not time. Raises ModelMissing, ModelBroken or
    EngineError (torch missing, unsupported architecture, out of memory).
    """
    if not path.exists():
        raise ModelMissing(f"{path} does not exist.", hint="Pull the model with: agent-kernel model pull NAME")
    libraries = import_libraries()
    if options.threads:
        libraries.torch.set_num_threads(options.threads)
    try:
        directory = ConvertedModel(path, cache_dir).open(*libraries, progress) if path.is_file() else path
        _check_files(directory)
        return _load(libraries, directory, options, progress)
    except AgentKernelError:
        raise
    except (Exception, MemoryError) as error:
        raise load_error(path, error) from error


def load_error(path: Path, error: BaseException) -> EngineError:
    """Convert an error of a library to an EngineError with a hint on what to do."""
    words = str(error).strip()
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or any(sign in words for sign in _NO_MEMORY):
        return OutOfMemory(
            f"There is not enough memory to load {path.name}.",
            hint="Close other programs, choose a smaller model, or load the model with precision nf4 (bitsandbytes).",
        )
    if isinstance(error, ImportError):
        return EngineError(f"{path.name} needs a library that is missing: {words}", hint=SETUP)
    if "trust_remote_code" in words or "custom code" in words:
        return ModelUnsupported(
            f"{path.name} needs its own program code, which agent-kernel never runs.",
            hint="Choose a model whose architecture is part of transformers.",
        )
    if kind in ("SafetensorError", "JSONDecodeError", "EOFError", "UnicodeDecodeError"):
        return ModelBroken(f"{path.name} is damaged: {words.splitlines()[0]}", hint="Download the model's files again.")
    if "does not recognize this architecture" in words or "Unrecognized configuration class" in words:
        return ModelUnsupported(
            f"This version of transformers does not know the architecture of {path.name}: {words.splitlines()[0]}",
            hint="Choose another model, or install a newer transformers with: agent-kernel model setup gpu",
        )
    first = words.splitlines()[0] if words else kind
    return ModelBroken(
        f"transformers cannot load {path.name}: {first}",
        hint=("Download the model's files again, or choose another model."),
    )


class Libraries(NamedTuple):
    """The imported modules torch and transformers."""

    torch: Any
    transformers: Any


def import_libraries() -> Libraries:
    """Import torch and transformers. Raises EngineError, with the command that installs them, if one of them is
    missing."""
    # The worker must not access the network; huggingface_hub reads this variable when it is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["TQDM_DISABLE"] = "1"
    try:
        # This is the only import of torch. It takes seconds, so only the worker imports it.
        import torch
        import transformers
    except ImportError as error:
        raise EngineError(
            f"The transformers backend cannot be imported in this environment: {error}", hint=SETUP
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return Libraries(torch, transformers)


def _device(torch: Any, name: str) -> str:
    """Return the device on which the model runs: cpu, cuda:N or auto. Raises EngineError if ``name`` does not
    exist."""
    has_cuda = torch.cuda.is_available()
    name = name or ("cuda" if has_cuda else "cpu")
    if name == "cuda":
        name = "cuda:0"
    if name in ("cpu", "auto"):
        return name
    if not name.startswith("cuda:") or not name[5:].isdigit():
        raise EngineError(f"There is no device {name!r}; choose cpu, cuda, cuda:N or auto.")
    if not has_cuda or int(name[5:]) >= torch.cuda.device_count():
        raise EngineError(
            f"This machine has no device {name}.", hint="Load the model with device cpu, or check the driver."
        )
    return name


def _check_files(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise ModelBroken(f"{path} has no config.json.", hint="Give a directory as save_pretrained writes it.")
    if not any(path.glob(WEIGHTS)):
        raise ModelBroken(
            f"{path} has no safetensors weights.",
            hint="Pickled weights (.bin, .pt) can run code and are not loaded; convert them with save_pretrained.",
        )


def _load(libraries: Libraries, path: Path, options: LoadOptions, progress: Progress) -> TorchModel:
    torch, transformers = libraries
    device = _device(torch, options.device)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    progress("reading the vocabulary", None)
    config = transformers.AutoConfig.from_pretrained(path, **local)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, **local)
    sees = type(config) in transformers.AutoModelForImageTextToText._model_mapping
    processor = load_processor(transformers, path, **local) if sees else None
    dtype = _dtype(torch, config.get_text_config(), options.precision, device)
    progress("loading the weights", None)
    started = time.monotonic()
    kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    arguments = {"config": config, "dtype": dtype, "use_safetensors": True, "output_loading_info": True}
    model, report = kind.from_pretrained(path, **arguments, **_placement(transformers, options, device, dtype), **local)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelBroken(
            (f"The model lacks {len(missing)} of its tensors, for example {missing[0]}."),
            hint="Download the model's files again.",
        )
    places = sorted({str(place) for place in getattr(model, "hf_device_map", {}).values()}) or [str(model.device)]
    if "disk" in places:
        raise EngineError(
            "The model does not fit into the memory that max_memory allows.",
            hint="Raise max_memory, or use precision nf4.",
        )
    model.eval()
    details = {
        "backend": "transformers",
        "version": transformers.__version__,
        "torch": torch.__version__,
        "device": ", ".join(places),
        "precision": options.precision or _precision(dtype),
        "load_s": round(time.monotonic() - started, 2),
    }
    text = config.get_text_config()
    length = int(getattr(text, "max_position_embeddings", 0) or 0)
    name = str(dtype).removeprefix("torch.")
    return TorchModel(model, tokenizer, processor, str(model.device), name, details, str(config.model_type), length)


def _placement(transformers: Any, options: LoadOptions, device: str, dtype: Any) -> dict[str, Any]:
    """Return the arguments of ``from_pretrained`` that place the weights on devices and quantise them."""
    arguments: dict[str, Any] = {}
    if device == "auto":
        arguments["device_map"] = "auto"
        if options.max_memory:
            arguments["max_memory"] = {_memory_key(name): size for name, size in options.max_memory.items()}
    elif device != "cpu" or options.precision in QUANTISED:
        arguments["device_map"] = {"": device}
    if options.precision == "int8":
        arguments["quantization_config"] = transformers.BitsAndBytesConfig(load_in_8bit=True)
    elif options.precision == "nf4":
        arguments["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    return arguments


def _memory_key(name: str) -> int | str:
    """Return the key by which accelerate identifies a device: the number of a CUDA device, or the name of any other."""
    number = name.removeprefix("cuda:")
    return int(number) if number.isdigit() else name


def _dtype(torch: Any, config: Any, precision: str, device: str) -> Any:
    if precision in PRECISIONS:
        return getattr(torch, PRECISIONS[precision])
    if precision and precision not in QUANTISED:
        raise EngineError(f"There is no precision {precision!r}; choose one of {', '.join((*PRECISIONS, *QUANTISED))}.")
    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if _bfloat16_is_quick(torch, int(config.hidden_size)) else torch.float32


def _bfloat16_is_quick(torch: Any, width: int) -> bool:
    """Return whether a matrix product, which takes most of the time of prefill, is at least as fast in bfloat16 as in
    float32 on this CPU. ``width`` is the width of the model's layers. The function compares the best of several runs,
    since other programs only add time, and takes 10 to 200 ms."""

    def best(dtype: Any) -> float:
        rows, weights = torch.ones(PROBE_ROWS, width, dtype=dtype), torch.ones(2 * width, width, dtype=dtype)
        return min(timeit.repeat(lambda: torch.nn.functional.linear(rows, weights), number=1, repeat=PROBE_RUNS))

    return best(torch.bfloat16) <= best(torch.float32)


def _precision(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return next((short for short, full in PRECISIONS.items() if full == name), name)


# Converts a GGUF file to bfloat16 safetensors and keeps them on disk. transformers takes 20 to 60 s to read a GGUF
# file at every load, and one or two seconds to read the converted files.
#
# The directory is named by the file's identity. It gets its final name by one rename when it is complete, so that no
# reader sees an incomplete one. Two processes may convert the same file at the same time.


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


def load_processor(transformers: Any, path: Path, **how: Any) -> Any:
    """Load the processor of the model in ``path``; ``how`` are keyword arguments of ``from_pretrained``. Many families
    of models (Qwen VL, SmolVLM, InternVL) include a video part that needs torchvision. Without torchvision that part is
    left out, because videos arrive as pictures. Raises the library's ImportError if anything else is missing."""
    try:
        return transformers.AutoProcessor.from_pretrained(path, **how)
    except ImportError as error:
        if "torchvision" not in str(error).lower():
            raise
        kind = getattr(transformers, _class_name(path), None)
        if kind is None or VIDEO not in kind.get_attributes():
            raise
    return _without_videos(kind).from_pretrained(path, **how)


def _without_videos(kind: Any) -> Any:
    """Return a subclass of the processor class ``kind`` without the video part. Its constructor takes the other
    parts."""
    parts = [part for part in kind.get_attributes() if part != VIDEO]
    return type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda cls: parts)})


def _class_name(path: Path) -> str:
    """Return the name of the processor's class from the model's files; an empty string if they do not state one."""
    for name in NAMED_IN:
        file = path / name
        if file.is_file():
            class_name = json.loads(file.read_text(encoding="utf-8")).get("processor_class")
            if isinstance(class_name, str):
                return class_name
    return ""
