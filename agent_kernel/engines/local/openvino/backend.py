"""Runs models on CPUs by openvino-genai's continuous batching, with prefix caching.

Observed with 2026.4: ``step`` and the GGUF tokenizer hold Python's global interpreter lock while they run. A cancelled
request has the status IGNORED, and its full blocks stay cached. Log probabilities are those before a grammar's mask.
The options temperature, top_p, top_k, min_p, the penalties, and the low 32 bits of a seed have an effect. If the blocks
run out with several requests, the library ends all of them and loses blocks, so the caller submits only requests that
fit together. A grammar that does not compile breaks the step and the pipeline (``grammar/compile_check.py``).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import EngineError, ModelBroken, ModelMissing, ModelUnsupported, refuse_fields
from agent_kernel.engines.local.backend import (
    ChatMessage,
    DecodingOptions,
    Finish,
    LoadedModel,
    LoadOptions,
    Picture,
    Progress,
    StepOutput,
)
from agent_kernel.engines.local.catalog.gguf_header import Header, read_header
from agent_kernel.engines.local.catalog.model_directory import read_model_directory
from agent_kernel.engines.local.grammar.compile_check import WAIT_S, GrammarCheck, constraint
from agent_kernel.engines.local.openvino.graph_cache import BuiltModel
from agent_kernel.engines.local.system_memory import GIB, read_memory
from agent_kernel.engines.local.tool_calling.chat_template import ChatTemplate

BLOCK = 32
"""Number of tokens in a block of the KV cache, as the library's CPU plugin defines it."""
MAX_BATCHED = 64
"""Maximum number of prompt tokens per step. Other requests get no token during such a step, sometimes not even in the
next one. Measured with a 0.5B model on two cores: a step of 64 tokens takes at most 0.12 s, of 128 tokens 0.19 s, of
512 tokens 0.71 s; a prompt of 2,200 tokens takes 2.7 to 2.8 s with each of these sizes."""
CACHE_SHARE = 8
"""If ``cache_gb`` is not set, the cache takes the available memory divided by this number."""
CHECK_S = 0.01
TOKENIZED_AT_ONCE = 8_192
"""Maximum number of tokens that the library's tokenizer of a GGUF file returns for one text. It drops all further
tokens without an error."""
PIECE = TOKENIZED_AT_ONCE // 4 - 1
"""Maximum number of characters of the pieces into which a text is split before the tokenizer encodes it. Such a piece
never has more than TOKENIZED_AT_ONCE tokens, because a character has at most 4 bytes, and a token at least one. One
place is left for a token that a tokenizer puts before every text."""
_BOUNDARY = re.compile(r"(?<=\n)(?=\S)|(?<=\S)(?= \S)")
"""A place in a text across which no token extends: after the end of a line, or before a space between two words."""
WITHOUT = ("openvino_telemetry", "openvino.tools.ovc")
"""Modules that openvino would import. The first one sends usage data to Google Analytics unless the user has forbidden
it. The second one converts models, and sends such data when it is imported. openvino works without them."""
READS = ("llama", "qwen2", "qwen3")
"""Architectures of GGUF files from which openvino-genai 2026.4 can build a graph."""


@dataclass(frozen=True, slots=True)
class _UncheckedRequest:
    """A request that waits for the check of its grammar. ``until`` is the time of the monotonic clock at which the
    request is refused."""

    key: int
    ids: Sequence[int]
    decoding: DecodingOptions
    verdict: Future[str]
    until: float


class OpenVino:
    """Runs one model with a ``ContinuousBatchingPipeline``. If the load option ``cache_gb`` is not set, the KV cache
    takes an eighth of the available memory, in whole GB and at least 1. If ``blocks`` is set, the cache has that many
    blocks instead. ``batched`` is the maximum number of prompt tokens per step."""

    def __init__(self, cache_dir: Path, *, blocks: int = 0, batched: int = MAX_BATCHED) -> None:
        self._cache_dir = cache_dir
        self._blocks, self._batched = blocks, batched
        self._handles: dict[int, Any] = {}
        self._probable: set[int] = set()
        self._unchecked: deque[_UncheckedRequest] = deque()
        self._next = 0
        self._leaving = False

    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        memory = read_memory()
        self._cache_gb = max(1, int(options.cache_gb) or (memory.available if memory else 0) // CACHE_SHARE // GIB)
        self._threads, self._prefixes = options.threads, options.prefixes
        if not path.exists():
            raise ModelMissing(
                f"The model file {path.name} does not exist.", hint="Pull the model with: agent-kernel model pull NAME"
            )
        facts = read_model_directory(path) if path.is_dir() else _read_supported_header(path)
        self._numpy, self._ov, self._genai = import_libraries()
        built = BuiltModel(path, self._cache_dir, self._genai.__version__)
        try:
            self._open(built, progress)
        except (RuntimeError, IndexError) as error:  # IndexError: a required key is missing
            raise ModelBroken(
                f"openvino cannot load {path.name}: {str(error).strip().splitlines()[-1]}",
                hint="Pull the model again with: agent-kernel model pull --force NAME",
            ) from error
        self._eos = int(self._tokenizer.get_eos_token_id())
        self._check = GrammarCheck(self._ov, self._genai, self._numpy, self._tokenizer)
        progress("warming up", None)
        blocks = self._measure_blocks()
        details = {"backend": "openvino-genai", "version": self._genai.__version__, "device": "CPU"}
        return LoadedModel(
            BLOCK,
            blocks if options.prefixes else 0,
            details
            | {"cache_gb": self._cache_gb, "full cache": "evicts the least recently used prefixes"}
            | {"sampling": "temperature, top_p, top_k, min_p, penalties, seed, stop, logprobs"},
            template=self._tokenizer.get_original_chat_template(),
            architecture=facts.architecture,
            context_length=facts.context_length,
            parameters=facts.parameters,
            cache_tokens=blocks * BLOCK,
        )

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        # For messages without tools, the template engine of the library would add a tool prompt that no model was
        # trained on.
        if not tools and not any("tool_calls" in item or item["role"] == "tool" for item in messages):
            with suppress(RuntimeError):  # the library cannot run every template
                return str(self._tokenizer.apply_chat_template([dict(item) for item in messages], True))
        tokens = {"bos_token": self._tokenizer.get_bos_token(), "eos_token": self._tokenizer.get_eos_token()}
        return ChatTemplate(self._tokenizer.get_original_chat_template(), **tokens).render(messages, tools)

    def encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._tokenize(text)
        if len(ids) < TOKENIZED_AT_ONCE:
            return ids
        return [token for piece in split_text(text) for token in self._tokenize(piece)]

    def _tokenize(self, text: str) -> list[int]:
        encoded = self._tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]
        return [int(token) for token in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids))) if ids else ""

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        raise EngineError("This model reads text only.", hint="Choose a model that takes images.")

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        """Add a request and return its key. Raises EngineError for an empty prompt and for a request that the library
        refuses, and InvalidRequest for a ``logit_bias``, which the library does not support."""
        if not ids:
            raise EngineError("The prompt is empty.")
        refuse_fields(
            ["logit_bias"] if decoding.logit_bias else [], "openvino-genai", "Use a model that transformers runs."
        )
        self._next += 1
        if decoding.grammar is None:
            self._add(self._next, ids, decoding)
        else:
            verdict = self._check.verdict(decoding.grammar)
            self._unchecked.append(_UncheckedRequest(self._next, ids, decoding, verdict, time.monotonic() + WAIT_S))
        return self._next

    def step(self) -> list[tuple[int, StepOutput]]:
        refused = list(self._admit_checked_requests())
        self._leaving = False
        if self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        elif self._unchecked and not refused:
            wait([self._unchecked[0].verdict], CHECK_S)
        read = [(key, piece) for key in list(self._handles) if (piece := self._read(key)) is not None]
        return refused + read

    def cancel(self, key: int) -> None:
        self._unchecked = deque(request for request in self._unchecked if request.key != key)
        handle = self._handles.pop(key, None)
        self._probable.discard(key)
        if handle is not None:
            handle.cancel()
            self._leaving = True

    def running(self) -> int:
        """Return the number of running requests, including those that wait for the check of their grammar. While the
        blocks of a cancelled request are not free yet, the number is one higher, so that the caller runs another
        step, which frees them."""
        return len(self._handles) + len(self._unchecked) + self._leaving

    def usage(self) -> Mapping[str, float]:
        """Return figures for a status display. ``cache_bytes`` is the reserved size of the cache; the memory of a block
        is allocated at its first use."""
        metrics = self._pipeline.get_metrics()
        used = metrics.cache_usage / 100 if self._pipeline.has_non_finished_requests() else 0.0
        return {"cache_used": used, "cache_bytes": metrics.cache_size_in_bytes}

    def _add(self, key: int, ids: Sequence[int], decoding: DecodingOptions) -> None:
        if self._leaving:  # the cancelled request still holds the blocks that this one needs
            self._leaving = False
            self._pipeline.step()
        if decoding.logprob:
            self._probable.add(key)
        prompt = self._ov.Tensor(self._numpy.array(ids, dtype=self._numpy.int64).reshape(1, -1))
        try:
            self._handles[key] = self._pipeline.add_request(key, prompt, self._config(decoding))
        except RuntimeError as error:
            raise EngineError(f"openvino-genai refuses the request: {str(error).strip().splitlines()[-1]}") from error

    def _admit_checked_requests(self) -> Iterator[tuple[int, StepOutput]]:
        """Add the requests whose grammar compiles to the batch, and yield the refusals of the others."""
        waiting, self._unchecked = self._unchecked, deque()
        for request in waiting:
            reason = request.verdict.result() if request.verdict.done() else None
            if reason is None and time.monotonic() > request.until:
                reason = f"the grammar was not compiled within {WAIT_S:.0f} s"
            if reason is None:
                self._unchecked.append(request)
            elif reason:
                yield (
                    request.key,
                    StepOutput((), finish="refused", error=f"The grammar of this request is refused: {reason}."),
                )
            else:
                try:
                    self._add(request.key, request.ids, request.decoding)
                except EngineError as error:
                    yield request.key, StepOutput((), finish="refused", error=error.message)

    def _open(self, built: BuiltModel, progress: Progress) -> None:
        scheduler = self._genai.SchedulerConfig()
        scheduler.enable_prefix_caching = self._prefixes
        scheduler.dynamic_split_fuse = True
        if self._blocks:
            scheduler.num_kv_blocks = self._blocks
        else:
            scheduler.cache_size = self._cache_gb
        scheduler.max_num_batched_tokens = self._batched
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": self._threads} if self._threads else {}
        self._tokenizer, self._pipeline = built.open(self._genai, scheduler, properties, progress)

    def _measure_blocks(self) -> int:
        """Return the number of blocks in the cache, computed from the share that a prompt of one block occupies. The
        call also serves as the warm-up, because the first step of a process is by far the slowest."""
        key = self.submit([self._eos] * (BLOCK - 1), DecodingOptions(max_tokens=1))
        share = 0.0
        while self.running():
            self.step()
            share = max(share, self._pipeline.get_metrics().max_cache_usage)
        self.cancel(key)
        return round(100 / share) if share else 0

    def _config(self, decoding: DecodingOptions) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = decoding.max_tokens
        config.eos_token_id = self._eos
        config.stop_token_ids = {self._eos}
        config.do_sample = decoding.temperature > 0
        if config.do_sample:
            config.temperature, config.top_p = decoding.temperature, decoding.top_p
            if decoding.top_k:
                config.top_k = decoding.top_k
            config.min_p = decoding.min_p
            # Without a seed the library starts every request from the same random state.
            seed = decoding.seed if decoding.seed is not None else int.from_bytes(os.urandom(4))
            config.rng_seed = seed % 2**63
        config.repetition_penalty = decoding.repetition_penalty
        config.presence_penalty, config.frequency_penalty = decoding.presence_penalty, decoding.frequency_penalty
        if decoding.logprob:
            config.logprobs = 1
        if decoding.grammar is not None:
            config.structured_output_config = constraint(self._genai, decoding.grammar)
        return config

    def _read(self, key: int) -> StepOutput | None:
        handle = self._handles[key]
        reasons = self._genai.GenerationFinishReason
        ids: list[int] = []
        logprobs: list[float] = []
        finish: Finish = ""
        finishes: dict[Any, Finish] = {reasons.STOP: "stop", reasons.LENGTH: "length"}
        if handle.can_read():
            for output in handle.read().values():
                ids += output.generated_ids
                # The library returns logprobs even if they were not requested; they are then all 0.
                logprobs += output.generated_log_probs if key in self._probable else ()
                finish = finishes.get(output.finish_reason, finish)
        if not finish and handle.get_status() == self._genai.GenerationStatus.IGNORED:
            finish = "refused"
        if finish:
            del self._handles[key]
            self._probable.discard(key)
        if not ids and not finish:
            return None
        positions = [at for at, token in enumerate(ids) if token != self._eos]
        probable = tuple(logprobs[at] for at in positions) if len(logprobs) == len(ids) else ()
        return StepOutput(tuple(ids[at] for at in positions), probable, finish)


def import_libraries() -> tuple[Any, Any, Any]:
    """Import numpy, openvino and openvino_genai, without the modules of WITHOUT. This is the only import of openvino.
    It takes a third of a second, so only the worker imports it. Raises EngineError."""
    for name in WITHOUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # an import of it then raises ImportError
    try:
        import numpy
        import openvino
        import openvino_genai
    except ImportError as error:
        raise EngineError(
            f"openvino-genai cannot be imported in this environment: {error}",
            hint="Install it with: pip install openvino-genai",
        ) from error
    return numpy, openvino, openvino_genai


def split_text(text: str) -> Iterator[str]:
    """Split a text into pieces of at most PIECE characters, where possible between two words or lines."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            places = _BOUNDARY.finditer(text, start + PIECE // 2, end)
            end = max((place.start() for place in places), default=end)
        yield text[start:end]
        start = end


def _read_supported_header(path: Path) -> Header:
    """Read the header of a GGUF file. Raises ModelUnsupported if its architecture is not in READS. The library itself
    would only report that a key is missing."""
    header = read_header(path)
    if header.architecture not in READS:
        raise ModelUnsupported(
            f"openvino-genai cannot run {path.name}: it supports only GGUF files of the architectures "
            f"{', '.join(READS)}, not {header.architecture or 'one without a name'}.",
            hint="Choose another model, or its safetensors, which transformers runs (agent-kernel model setup gpu).",
        )
    return header
