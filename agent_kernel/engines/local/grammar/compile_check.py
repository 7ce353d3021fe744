"""Checks whether openvino-genai accepts a grammar, before a request with the grammar joins the batch.

The library compiles a grammar in a step of the batch. After a grammar that does not compile, every later request fails.
Each grammar is therefore first compiled by the same compiler in a separate thread, for a minimal model with the same
vocabulary; the batch continues meanwhile.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.engines.local.backend import OutputGrammar

MAX_GRAMMAR = 64 * 1024
"""Maximum number of characters of a grammar. The schemas of tools produce some hundred."""
COMPILE_S = 20.0
"""Longest accepted time in seconds (wall clock) to compile a grammar. The batch compiles an accepted grammar a second
time and stands still for as long. Grammars of ordinary tools take well under a second; the rest is a margin for a busy
machine."""
WAIT_S = 60.0
"""Longest time in seconds that a request waits for the check of its grammar. Grammars are compiled one after another,
so this includes the wait for earlier grammars."""
KEPT = 1024


class GrammarCheck:
    """Checks grammars by compiling them for a minimal model with the real model's tokenizer. The minimal model is built
    when the first grammar arrives."""

    def __init__(self, openvino: Any, genai: Any, numpy: Any, tokenizer: Any) -> None:
        self._ov, self._genai, self._numpy, self._tokenizer = openvino, genai, numpy, tokenizer
        self._thread = ThreadPoolExecutor(1, "grammar check")
        self._pipeline: Any = None
        self._known = RecentEntries[OutputGrammar, Future[str]](KEPT)

    def verdict(self, grammar: OutputGrammar) -> Future[str]:
        """Return a future for the result of the check: the reason why the grammar is refused, or an empty string if it
        compiles in time. All calls must come from one thread."""
        future = self._known.get(grammar)
        if future is None:
            future = self._submit(grammar)
        self._known[grammar] = future
        return future

    def _submit(self, grammar: OutputGrammar) -> Future[str]:
        if len(grammar.text) <= MAX_GRAMMAR:
            return self._thread.submit(self._compile, grammar)
        refused: Future[str] = Future()
        refused.set_result(f"the grammar has {len(grammar.text)} characters; the limit is {MAX_GRAMMAR}")
        return refused

    def _compile(self, grammar: OutputGrammar) -> str:
        try:
            if self._pipeline is None:
                self._pipeline = self._build_pipeline()
            started = time.monotonic()
            config = self._genai.GenerationConfig(
                max_new_tokens=1, structured_output_config=constraint(self._genai, grammar)
            )
            self._pipeline.generate(self._ov.Tensor(self._numpy.zeros((1, 1), dtype=self._numpy.int64)), config)
        except Exception as error:  # noqa: BLE001  the compiler may raise anything; the request is refused with it
            text = str(error).strip() or type(error).__name__
            return text.splitlines()[-1].rpartition(".cc:")[2]
        seconds = time.monotonic() - started
        return (
            ""
            if seconds <= COMPILE_S
            else (f"the grammar took {seconds:.0f} s to compile; the limit is {COMPILE_S:.0f} s")
        )

    def _build_pipeline(self) -> Any:
        """Build the smallest language model that the library accepts. Its inputs are token ids; it has a state that the
        library can reorder, and its logits are all zero."""
        numpy, op = self._numpy, self._ov.opset13
        ids = op.parameter([-1, -1], numpy.int64, name="input_ids")
        mask = op.parameter([-1, -1], numpy.int64, name="attention_mask")
        beams = op.parameter([-1], numpy.int32, name="beam_idx")
        for parameter in (ids, mask, beams):
            parameter.output(0).set_names({parameter.get_friendly_name()})
        hidden = op.unsqueeze(op.convert(ids, "f32"), op.constant(2, numpy.int32))
        batch = op.gather(op.shape_of(ids), op.constant(numpy.array([0])), op.constant(0))
        shape = op.concat([batch, op.constant([1, 1, 1], dtype=numpy.int64)], 0)
        first = op.broadcast(op.constant(0.0, numpy.float32), shape)
        state = op.read_value(first, "past.0.key", self._ov.Type.f32, self._ov.PartialShape([-1, 1, -1, 1]))
        assigned = op.assign(op.gather(state, beams, op.constant(0)), "past.0.key")
        size = len(self._tokenizer.get_vocab())
        zeros = op.constant(numpy.zeros((1, size), dtype=numpy.float32))
        logits = op.matmul(op.multiply(hidden, op.constant(0.0, numpy.float32)), zeros, False, False)
        logits.output(0).set_names({"logits"})
        model = self._ov.Model([op.result(logits, name="logits")], [assigned], [ids, mask, beams], "grammar check")
        with TemporaryDirectory() as directory:
            self._ov.save_model(model, str(Path(directory) / "openvino_model.xml"), compress_to_fp16=False)
            return self._genai.LLMPipeline(directory, self._tokenizer, "CPU", ATTENTION_BACKEND="SDPA")


def constraint(genai: Any, grammar: OutputGrammar) -> Any:
    pattern = {"regex": grammar.text} if grammar.kind == "regex" else {"grammar": grammar.text}
    return genai.StructuredOutputConfig(**pattern)
