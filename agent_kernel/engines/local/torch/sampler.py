"""Which token each running request gets: greedy or sampled, each by its own settings, all in one batch.

transformers' batching samples every request by one configuration, so it is told to be greedy, and this logits processor
leaves each row only the token that was chosen here. That is the one place where the library is hooked: four attributes
of the list of processors of its manager, unchanged in 5.22 and 5.23, and tried at every load (``transformers.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.engines.local.backend import DecodingOptions
from agent_kernel.engines.local.torch.grammar import Constraint
from agent_kernel.engines.local.torch.load import Libraries

KEY = "request"
"""The argument of the manager's ``add_request`` by which a row is known here."""


class Choices:
    """What one request gets, token by token. Who has read n tokens of the request may read the first n of
    ``logprobs``, also in another thread."""

    def __init__(
        self,
        libraries: Libraries,
        prompt: Sequence[int],
        decoding: DecodingOptions,
        constraint: Constraint | None,
        device: str,
    ) -> None:
        self._torch = libraries.torch
        self.decoding = decoding
        self.constraint = constraint
        self.logprobs: list[float] = []
        self.warpers = _warpers(libraries, decoding, len(prompt))
        self.seen: list[int] = [*prompt] if _looks_back(decoding) else []
        self.generator = None
        if decoding.temperature > 0:
            self.generator = self._torch.Generator(device)
            if decoding.seed is None:
                self.generator.seed()
            else:
                self.generator.manual_seed(decoding.seed % 2**63)

    @property
    def plain(self) -> bool:
        """Nothing to do but to take the likeliest token."""
        return self.constraint is None and self.generator is None and not self.warpers and not self.decoding.logprob

    def choose(self, row: Any) -> int:
        """The next token; ``row`` are its (1, vocabulary) logits in float32, which are changed."""
        raw = row.clone() if self.decoding.logprob else None
        if self.constraint is not None:
            self.constraint.mask(row)
        if self.warpers:
            # The tokens so far are only looked at by the penalties.
            row = self.warpers(self._torch.tensor([self.seen], dtype=self._torch.long, device=row.device), row)
        if self.generator is None:
            token = int(row.argmax(dim=-1))
        else:
            token = int(self._torch.multinomial(row.softmax(dim=-1), 1, generator=self.generator))
        if raw is not None:
            self.logprobs.append(float(raw[0, token] - raw.logsumexp(dim=-1)))
        if self.constraint is not None:
            self.constraint.accept(token)
        if self.seen:
            self.seen.append(token)
        return token


class Sampler:
    """The logits processor. ``begin`` and ``end`` may be called from any thread, the rest is the manager's."""

    supported_kwargs: Mapping[str, type] = {KEY: int}
    ignored_kwargs: tuple[str, ...] = ()

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._lock = threading.Lock()
        self._requests: dict[int, Choices] = {}
        self._rows: list[Choices | None] = []

    def install(self, manager: Any) -> None:
        """Becomes the only logits processor of ``manager``, which has not been started. Raises AttributeError,
        ImportError or TypeError where the library is not what it was."""
        from transformers import LogitsProcessorList
        from transformers.generation.continuous_batching.cb_logits_processors import (
            ContinuousBatchingLogitsProcessor,
            ContinuousBatchingLogitsProcessorList,
        )

        # A virtual subclass: the real one would need the import when this module is imported.
        ContinuousBatchingLogitsProcessor.register(type(self))
        processors = ContinuousBatchingLogitsProcessorList(LogitsProcessorList([self]))
        processors.tensors_required = 1
        if type(processors) is not type(manager.logit_processor) or not processors.do_processing:
            raise TypeError("the manager's logits processors are of another kind")
        manager.logit_processor = processors

    def begin(self, key: int, choices: Choices) -> None:
        with self._lock:
            self._requests[key] = choices

    def end(self, key: int) -> None:
        with self._lock:
            self._requests.pop(key, None)

    def fill_defaults(self, int32_tensor: Any) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: Sequence[Any]) -> Any:
        """Notes whose rows the next call gets; the library wants a number for each, which nobody reads."""
        keys = [request.state.logit_processor_kwargs.get(KEY) for request in requests_with_new_token]
        with self._lock:
            self._rows = [self._requests.get(key) for key in keys]
        return self._libraries.torch.zeros(len(keys), dtype=self._libraries.torch.int32)

    def __call__(self, scores: Any, tensor_arg: Any) -> Any:
        """``scores`` are (rows, vocabulary) logits in float32, which are the library's to throw away."""
        for at, choices in enumerate(self._rows[: scores.size(0)]):
            if choices is not None and not choices.plain:
                token = choices.choose(scores[at : at + 1])
                scores[at].fill_(float("-inf"))
                scores[at, token] = 0.0
        return scores


class Penalties:
    """The penalties of OpenAI's API on the tokens of the answer (those behind the first ``prompt`` ids), and its
    logit_bias, as a logits processor: the library has neither."""

    def __init__(self, torch: Any, decoding: DecodingOptions, prompt: int) -> None:
        self._torch = torch
        self._decoding = decoding
        self._prompt = prompt

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        decoding, answer = self._decoding, input_ids[0, self._prompt :]
        if answer.numel():
            counts = self._torch.bincount(answer, minlength=scores.shape[-1])
            taken = decoding.presence_penalty * (counts > 0) + decoding.frequency_penalty * counts
            scores = scores - taken.to(scores.dtype)
        for token, bias in decoding.logit_bias:
            if 0 <= token < scores.shape[-1]:
                scores[:, token] += bias
        return scores


def _looks_back(decoding: DecodingOptions) -> bool:
    penalties = (decoding.repetition_penalty - 1.0, decoding.presence_penalty, decoding.frequency_penalty)
    return any(penalties) or bool(decoding.logit_bias)


def _warpers(libraries: Libraries, decoding: DecodingOptions, prompt: int) -> Any:
    """The library's own, in the order in which its ``generate`` applies them, behind ours."""
    transformers, found = libraries.transformers, list[Any]()
    if decoding.presence_penalty or decoding.frequency_penalty or decoding.logit_bias:
        found.append(Penalties(libraries.torch, decoding, prompt))
    if decoding.repetition_penalty != 1.0:
        found.append(transformers.RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty))
    if decoding.temperature > 0:
        if decoding.temperature != 1.0:
            found.append(transformers.TemperatureLogitsWarper(decoding.temperature))
        if decoding.top_k:
            found.append(transformers.TopKLogitsWarper(decoding.top_k))
        if decoding.top_p < 1.0:
            found.append(transformers.TopPLogitsWarper(decoding.top_p))
        if decoding.min_p:
            found.append(transformers.MinPLogitsWarper(decoding.min_p))
    return transformers.LogitsProcessorList(found)
