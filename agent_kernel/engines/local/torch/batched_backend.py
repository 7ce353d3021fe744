"""Runs models by the continuous batching of transformers, on CUDA devices and CPUs. Requests share prefixes.

The library's manager runs in a separate thread, and ``step`` collects its output. Observed with 5.22 and 5.23: a
request that can never fit into the cache ends the manager and all its requests, so this backend refuses such a request.
Requests that do not fit together are restarted one after another. The library's CUDA graphs and its asynchronous
batching bypass the sampler, so both are off; ``decode_graphs.py`` records graphs that do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import EngineError, ModelUnsupported
from agent_kernel.engines.local.backend import (
    ChatMessage,
    DecodingOptions,
    Finish,
    LoadedModel,
    LoadOptions,
    OutputGrammar,
    Picture,
    Progress,
    StepOutput,
)
from agent_kernel.engines.local.system_memory import GIB, read_memory
from agent_kernel.engines.local.torch.decode_graphs import RUNS_BEFORE, DecodeGraphs
from agent_kernel.engines.local.torch.grammar import Grammars
from agent_kernel.engines.local.torch.load import TorchModel, import_libraries, load_error, load_model
from agent_kernel.engines.local.torch.paged_cache import BLOCK, PagedCache, bytes_per_block
from agent_kernel.engines.local.torch.sampler import KEY, Choices, Sampler

MAX_BATCHED = 512
"""Maximum number of tokens per step: large enough for full prefill speed on CPUs, and small enough that other streams
continue."""
MAX_REQUESTS = 64
MARGIN = 0.02
"""Share of the cache that must be free, otherwise finished prefixes are evicted. The library's default of 0.15 would
leave a seventh of the cache unused."""
WAIT_S = 0.01
"""Longest time in seconds that a step waits for the next token. Jobs in the decoder's thread wait for as long at
most."""
LEAST_TOKENS = 2
"""Smallest token limit that is passed to the library, which does not keep the blocks of a request that ends with its
first token."""
STOP_S = 30.0
PROBE = "The quick brown fox jumps over the lazy dog. The quick brown"
PROBE_TOKENS = RUNS_BEFORE + 4
"""Number of tokens that the test at each load decodes. They are enough for the last one to come from a replayed graph,
if graphs are used."""
PROBE_GRAMMAR = OutputGrammar("regex", "(yes|no)")
NEAR = 0.5
"""Largest accepted difference between two computations of one log probability, with and without a batch. In bfloat16,
correct computations differ by less; wrong attention differs by far more."""


class Unbatchable(Exception):
    """The model cannot be batched; the message is the reason. ``model`` is the loaded model, which can be run one
    request at a time instead."""

    def __init__(self, reason: str, model: TorchModel) -> None:
        super().__init__(reason)
        self.model = model


@dataclass(slots=True)
class _Request:
    choices: Choices
    limit: int
    sent: int = 0
    """Number of tokens that ``step`` has returned so far."""


class Transformers:
    """Runs one model with a ``ContinuousBatchingManager``. If the load option ``cache_gb`` is not set, the cache takes
    an eighth of the available memory on CPUs, but at least 1 GB. On CUDA, the library chooses the size by the free
    device memory."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._requests: dict[int, _Request] = {}
        self._refused: list[int] = []
        self._next = 0
        self._fault = ""

    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        """Load a model. In addition to the errors of ``Backend.load``, it raises Unbatchable."""
        return self.start(load_model(path, options, self._cache_dir, progress), options, progress)

    def start(self, model: TorchModel, options: LoadOptions, progress: Progress) -> LoadedModel:
        """Start batching with a model that is already in memory. Raises Unbatchable or EngineError."""
        self._libraries = import_libraries()
        self._model, self._options = model, options
        if model.processor is not None:
            raise Unbatchable("the model accepts pictures", model)
        if len(set(getattr(model.model, "hf_device_map", {"": model.device}).values())) > 1:
            raise Unbatchable("the model is spread over several devices", model)
        progress("preparing the cache", None)
        try:
            grammars = Grammars(model)
        except EngineError as error:
            self._fault = error.message
        else:
            self._grammars = grammars
        self._open(sampled=True)
        progress("warming up", None)
        self._check_batching()
        return self._describe_loaded()

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return self._model.render(messages, tools)

    def encode(self, text: str) -> list[int]:
        return self._model.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._model.decode(ids)

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        raise EngineError("This model reads text only.", hint="Choose a model that takes images.")

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        """Add a request and return its key. Raises EngineError for a grammar that cannot be enforced, and for sampling
        if only greedy decoding works."""
        constraint = None
        if decoding.grammar is not None:
            if self._fault:
                raise EngineError(f"Constrained output does not work with this model: {self._fault}")
            constraint = self._grammars.begin(decoding.grammar)
        if self._sampler is None and decoding.temperature > 0:
            raise EngineError(f"Only greedy decoding works with this model, not sampling: {self._fault}")
        self._next += 1
        key = self._next
        choices = Choices(self._libraries, ids, decoding, constraint, self._model.device)
        room = self._cache.blocks * BLOCK - len(ids)
        self._requests[key] = _Request(choices, min(decoding.max_tokens, room))
        if room < 1:
            self._refused.append(key)
            return key
        options: dict[str, Any] = {}
        if self._sampler is not None:
            self._sampler.begin(key, choices)
            options[KEY] = key
        ends = sorted(self._model.end_ids) or [-1]
        limits = {"max_new_tokens": max(LEAST_TOKENS, min(decoding.max_tokens, room)), "eos_token_id": ends}
        if self._manager.add_request([*ids], request_id=str(key), streaming=True, **limits, **options) is None:
            raise RuntimeError(self._end_reason())
        return key

    def step(self) -> list[tuple[int, StepOutput]]:
        pieces = [(key, StepOutput((), finish="refused")) for key in self._refused]
        self._refused.clear()
        wait = 0.0 if pieces else WAIT_S
        while (output := self._manager.get_result(timeout=wait)) is not None:
            wait = 0.0
            key = int(output.request_id)
            if key in self._requests and (piece := self._piece(key, output)) is not None:
                pieces.append((key, piece))
        for key, piece in pieces:
            if piece.finish == "length":
                self.cancel(key)  # the limit passed to the library may be higher: LEAST_TOKENS
            elif piece.finish:
                self._forget(key)
        if not pieces and not self._manager.is_running():
            raise RuntimeError(self._end_reason())
        return pieces

    def cancel(self, key: int) -> None:
        if key in self._requests:
            self._manager.cancel_request(str(key))
            self._forget(key)

    def running(self) -> int:
        return len(self._requests)

    def usage(self) -> Mapping[str, float]:
        return self._cache.usage()

    def _piece(self, key: int, output: Any) -> StepOutput | None:
        if output.error is not None:
            raise RuntimeError(output.error)
        request = self._requests[key]
        new = output.generated_tokens[request.sent : request.limit]
        logprobs: Sequence[float] = ()
        if request.choices.decoding.logprob:
            all_logprobs = output.logprobs if self._sampler is None else request.choices.logprobs
            logprobs = all_logprobs[request.sent : request.sent + len(new)]
        reused = self._cache.pop_reused(output.request_id) if not request.sent else None
        request.sent += len(new)
        finish: Finish = ""
        if new and new[-1] in self._model.end_ids:
            finish = "stop"
        elif output.is_finished() or request.sent >= request.limit:
            finish = "length"
        if not new and not finish:
            return None
        count = len(new) - (finish == "stop")
        return StepOutput(tuple(new[:count]), tuple(logprobs[:count]), finish, reused)

    def _forget(self, key: int) -> None:
        self._requests.pop(key, None)
        self._cache.forget(str(key))
        if key in self._refused:
            self._refused.remove(key)
        if self._sampler is not None:
            self._sampler.end(key)

    def _open(self, sampled: bool) -> None:
        """Create a manager and its cache. With ``sampled``, the manager uses this package's sampler. Raises Unbatchable
        or EngineError."""
        torch, transformers = self._libraries
        model, ends = self._model.model, sorted(self._model.end_ids)
        generation = transformers.GenerationConfig(do_sample=False, max_new_tokens=1, eos_token_id=ends or -1)
        self._sampler = None
        try:
            self._manager = model.init_continuous_batching(generation, self._configuration(sampled))
            if sampled:
                self._sampler = Sampler(self._libraries)
                self._install(self._sampler)
            self._manager.warmup()
            self._graphs = self._install_graphs()
            self._cache = PagedCache(self._manager.batch_processor.cache)
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise load_error(Path("the model's cache"), error) from error
        except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
            raise Unbatchable(f"the library's batching cannot run the model ({error})", self._model) from error
        if self._options.prefixes and not self._cache.shares_prefixes:
            raise Unbatchable(
                ("the model has sliding-window attention, and the library keeps no prefixes of such models"),
                self._model,
            )
        self._manager.start()

    def _configuration(self, sampled: bool) -> Any:
        cuda = self._model.device.startswith("cuda")
        limits: dict[str, Any] = {} if cuda and not self._options.cache_gb else {"num_blocks": self._choose_blocks()}
        if not cuda:
            # ``limits`` already leaves a reserve; by default the library would leave another 40 % of the memory free.
            limits["max_memory_percent"] = 1.0
        return self._libraries.transformers.ContinuousBatchingConfig(
            page_size=BLOCK,
            max_batch_tokens=MAX_BATCHED,
            max_requests_per_batch=MAX_REQUESTS,
            allow_block_sharing=self._options.prefixes,
            safety_margin=MARGIN,
            use_async_batching=False,
            use_cuda_graph=False,
            auto_switch_to_flash=cuda,
            return_logprobs=not sampled,
            **limits,
        )

    def _install(self, sampler: Sampler) -> None:
        try:
            sampler.install(self._manager)
        except (AttributeError, ImportError, TypeError) as error:
            self._sampler = None
            self._fault = f"transformers {self._libraries.transformers.__version__} has changed: {error}"

    def _install_graphs(self) -> DecodeGraphs | None:
        graphs = self._new_graphs()
        if graphs is not None:
            try:
                graphs.install(self._manager)
            except AttributeError as error:
                graphs.fault = f"transformers {self._libraries.transformers.__version__} has changed: {error}"
        return graphs

    def _new_graphs(self) -> DecodeGraphs | None:
        return DecodeGraphs(self._model.model) if self._model.device.startswith("cuda") else None

    def _choose_blocks(self) -> int:
        memory = read_memory()
        share = max(GIB, memory.available // 8) if memory else GIB
        return max(1, (int(self._options.cache_gb * GIB) or share) // self._block_bytes())

    def _check_batching(self) -> None:
        """Test, at every load, the behaviour on which later requests rely. Raises Unbatchable if a batch gives a
        different result than the model without batching. If a grammar is not enforced, requests with a grammar are
        refused from then on, and the manager is started again without the sampler that applies grammars."""
        prompt = self.encode(PROBE)
        try:
            alone = self._log_probabilities(prompt)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            self._manager.stop(block=True, timeout=STOP_S)
            raise ModelUnsupported(
                f"The model was loaded, but its computation fails: {error}", hint="Try another precision or device."
            ) from error
        try:
            if self._sampler is not None and not self._fault:
                self._fault = self._probe_grammar(prompt)
                if self._fault:
                    self._manager.stop(block=True, timeout=STOP_S)
                    self._open(sampled=False)
            self._compare_logprob(alone, prompt)
        except (RuntimeError, Unbatchable) as error:
            self._manager.stop(block=True, timeout=STOP_S)
            raise Unbatchable(str(error), self._model) from error

    def _probe_grammar(self, prompt: list[int]) -> str:
        """Return the reason why grammars are not enforced; an empty string if they are."""
        try:
            ids, _ = self._run_probe(prompt, DecodingOptions(max_tokens=8, grammar=PROBE_GRAMMAR))
        except EngineError as error:
            return error.message
        if self.decode(ids) in ("yes", "no"):
            return ""
        return f"transformers {self._libraries.transformers.__version__} does not apply grammars any more"

    def _log_probabilities(self, prompt: list[int]) -> Any:
        """Return the log probabilities of all candidates for the token after ``prompt``, computed without batch and
        cache."""
        torch = self._libraries.torch
        with torch.no_grad():
            ids = torch.tensor([prompt], device=self._model.device)
            return torch.log_softmax(self._model.model(input_ids=ids).logits[0, -1].float(), dim=-1)

    def _compare_logprob(self, alone: Any, prompt: list[int]) -> None:
        ids, logprobs = self._run_probe(prompt, DecodingOptions(max_tokens=PROBE_TOKENS, logprob=True))
        for at in sorted({0, len(ids) - 1} if ids else ()):
            expected = self._log_probabilities(prompt + ids[:at]) if at else alone
            batched, own = logprobs[at], float(expected[ids[at]])
            if abs(batched - own) > NEAR:
                raise Unbatchable(
                    f"a token has the log probability {batched:.2f} in a batch and {own:.2f} without one", self._model
                )

    def _run_probe(self, prompt: list[int], decoding: DecodingOptions) -> tuple[list[int], list[float]]:
        key = self.submit(prompt, decoding)
        ids: list[int] = []
        logprobs: list[float] = []
        while key in self._requests:
            for _, piece in self.step():  # there is no other request yet
                ids += piece.ids
                logprobs += piece.logprobs
        return ids, logprobs

    def _describe_loaded(self) -> LoadedModel:
        model = self._model
        details = dict(model.details) | {"cache_gb": round(self._cache.blocks * self._block_bytes() / GIB, 2)}
        details["grammars"] = f"refused: {self._fault}" if self._fault else f"xgrammar {self._grammars.version}"
        if self._graphs is not None:
            details["cuda graphs"] = f"off: {self._graphs.fault}" if self._graphs.fault else "on"
        if self._options.prefixes:
            details["full cache"] = (
                "evicts the least recently used prefixes" if self._cache.drops_oldest else "evicts all prefixes"
            )
        return LoadedModel(
            block=BLOCK,
            blocks=self._cache.blocks if self._options.prefixes else 0,
            details=details,
            template=model.template,
            architecture=model.architecture,
            context_length=model.context_length,
            parameters=model.parameters,
            at_once=MAX_REQUESTS,
            cache_tokens=self._cache.blocks * BLOCK,
            response_template=model.response_template,
        )

    def _block_bytes(self) -> int:
        item = getattr(self._libraries.torch, self._model.dtype).itemsize
        return bytes_per_block(self._model.model.config.get_text_config(), item)

    def _end_reason(self) -> str:
        status = getattr(self._manager, "background_thread_status", None)
        error = getattr(status, "fatal_error", None)
        return f"transformers' batching has ended: {type(error).__name__}: {error}" if error else "it has ended"
