"""Records the steps of a CUDA device that compute few tokens as CUDA graphs, and replays them.

On a CUDA device, a step of decoding starts hundreds of short kernels, and starting them from Python takes several times
as long as the device takes to run them. A graph starts all of them with one call. It can only be replayed for tensors
of the same sizes at the same addresses: transformers' batching keeps its inputs in tensors that stay in place, and this
module pads the sizes of a step to powers of two, so that few graphs suffice. On an H100, one session of a model with
1.5 billion weights in bfloat16 decoded 151 tokens per second; the library's own batching, which records no graphs with
this attention, decoded 29.

The library has such graphs too, but they contain the choice of the tokens, so that the sampler would not be called
(``sampler.py``). The graphs of this module end with the logits. To use them, this module replaces the manager's model
and two attributes of its runner, which are the same in transformers 5.22 to 5.24. ``batched_backend.py`` compares a
replayed step with the model itself at every load.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from agent_kernel.engines.local.torch.load import import_libraries

MAX_TOKENS = 64
"""Largest number of tokens in a step that is recorded. With more tokens, the device computes for longer than Python
takes to start the kernels."""
LEAST_READ = 1024
MOST_READ = 65_536
"""LEAST_READ and MOST_READ are the bounds for the padded number of cached tokens that a recorded step reads. Above
MOST_READ, the copies that a step makes of the cached tokens would take memory that the cache needs."""
RUNS_BEFORE = 2
"""Number of steps of the same sizes that run without a graph. Recording one takes about as long as ten steps, and rare
sizes are not worth it. The first steps also let libraries prepare what cannot be prepared while a graph is recorded."""
MAX_GRAPHS = 64


class DecodeGraphs:
    """Replaces the model in a ``ContinuousBatchingManager``: calls the model, or replays the graph of an earlier call.

    ``fault`` is the reason why steps are not recorded, empty if they are. Only the manager's thread calls the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._pool: Any = None
        self._runs: dict[tuple[int, ...], int] = {}
        self._graphs: dict[tuple[int, ...], tuple[Any, Any]] = {}
        self._padded = False
        self.fault = ""

    def install(self, manager: Any) -> None:
        """Make ``manager``, which is warmed up and not started, call its model through this object. Raises
        AttributeError if the library has changed."""
        runner = manager.batch_processor.model_runner
        if not isinstance(runner.pad_inputs, bool) or not callable(runner.maybe_pad_inputs):
            raise AttributeError("pad_inputs or maybe_pad_inputs has another type")
        if manager.batch_processor.inputs_and_outputs.attention_mask is None:
            # Flash attention receives lengths as Python numbers, which a graph would record as constants.
            self.fault = "the model uses flash attention"
            return
        runner.maybe_pad_inputs = self._padding(runner)
        manager.model = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **inputs: Any) -> Any:
        """Run the model on the ``inputs`` of one step. The result has at least the attribute ``logits``, which is valid
        until the next call."""
        if not self._padded or self.fault:
            return self._model(**inputs)
        key = (inputs["input_ids"].shape[-1], inputs["attention_mask"].shape[-1], inputs["read_index"][0].shape[-1])
        if key not in self._graphs:
            self._runs[key] = self._runs.get(key, 0) + 1
            if self._runs[key] <= RUNS_BEFORE:
                return self._model(**inputs)
            try:
                self._graphs[key] = self._record(inputs)
            except RuntimeError as error:
                self.fault = str(error).splitlines()[0]
                return self._model(**inputs)
        graph, logits = self._graphs[key]
        graph.replay()
        return SimpleNamespace(logits=logits)

    @property
    def count(self) -> int:
        return len(self._graphs)

    def _record(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        if len(self._graphs) >= MAX_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        cuda = import_libraries().torch.cuda
        graph = cuda.CUDAGraph()
        self._pool = self._pool or cuda.graph_pool_handle()
        # Other threads may use the device during the recording. In this mode, only calls of this thread can end it.
        with cuda.graph(graph, pool=self._pool, stream=cuda.current_stream(), capture_error_mode="thread_local"):
            logits = self._model(**inputs).logits
        return graph, logits

    def _padding(self, runner: Any) -> Callable[..., tuple[int, int]]:
        """Return the function by which ``runner`` learns the sizes of a step: numbers of new and of cached tokens."""

        def pad(num_q_tokens: int, max_kv_read: int, use_decode_fast_path: bool) -> tuple[int, int]:
            read = max(LEAST_READ, _power_of_two(max_kv_read)) if max_kv_read else 0
            # The library reads pad_inputs again while it prepares and runs the step.
            self._padded = runner.pad_inputs = num_q_tokens <= MAX_TOKENS and 0 < read <= MOST_READ and not self.fault
            if not self._padded:
                return num_q_tokens, max_kv_read
            return _power_of_two(num_q_tokens), min(read, int(runner.cache.max_tokens_read))

        return pad


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()
