"""Chooses the next token of each running request in a batch by that request's own settings.

transformers' batching uses one sampling configuration for all requests. It is therefore configured as greedy, and this
logits processor leaves only one candidate in each row: the token that was chosen here. To install it, this package
changes four attributes of the manager's list of processors. They are the same in 5.22 and 5.23, and are tested at every
load (``batched_backend.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.engines.local.backend import DecodingOptions
from agent_kernel.engines.local.torch.grammar import Constraint
from agent_kernel.engines.local.torch.load import Libraries

KEY = "request"
"""The name of the argument of the manager's ``add_request`` by which this sampler recognises a request."""


class Choices:
    """Chooses the tokens of one request. ``logprobs`` contains the log probability of each chosen token, if requested.
    A reader in another thread that has received n tokens of the request may read its first n entries."""

    def __init__(
        self,
        libraries: Libraries,
        prompt: Sequence[int],
        decoding: DecodingOptions,
        constraint: Constraint | None,
        device: str,
    ) -> None:
        self.torch = libraries.torch
        self.decoding = decoding
        self.constraint = constraint
        self.logprobs: list[float] = []
        self.penalties = _penalties(libraries, decoding, len(prompt))
        self.warpers = _warpers(libraries, decoding)
        self.seen: list[int] = [*prompt] if self.penalties else []
        self.generator = None
        if decoding.temperature > 0:
            self.generator = self.torch.Generator(device)
            if decoding.seed is None:
                self.generator.seed()
            else:
                self.generator.manual_seed(decoding.seed % 2**63)

    @property
    def plain(self) -> bool:
        """Whether the library can choose the tokens of this request without this sampler: the most likely token is
        always taken, and no log probabilities are requested."""
        return self.constraint is None and self.generator is None and not self.penalties and not self.decoding.logprob

    @property
    def shape(self) -> tuple[float, ...]:
        """The sampling options as a tuple. Requests with equal options can be computed together."""
        options = self.decoding
        return (options.temperature, options.top_k, options.top_p, options.min_p) if options.temperature > 0 else ()

    def restrict(self, row: Any) -> None:
        """Apply the grammar and the penalties to ``row`` in place. It contains logits, with shape (1, vocabulary)."""
        if self.constraint is not None:
            self.constraint.mask(row)
        if self.penalties:
            seen = self.torch.tensor([self.seen], dtype=self.torch.long, device=row.device)
            row.copy_(self.penalties(seen, row))

    def note(self, token: int, logprob: float) -> None:
        """Record the chosen token and its log probability, which is ignored unless it was requested."""
        if self.decoding.logprob:
            self.logprobs.append(logprob)
        if self.constraint is not None:
            self.constraint.accept(token)
        if self.seen:
            self.seen.append(token)


def choose_tokens(rows: Any, choices: Sequence[Choices]) -> Any:
    """Choose the next token of each of several requests, and record it in its ``Choices``. ``rows`` contains their
    logits in float32, with shape (requests, vocabulary), and is changed. Return a tensor of the ids on its device."""
    torch = choices[0].torch
    with_logprob = [at for at, choice in enumerate(choices) if choice.decoding.logprob]
    raw = rows[with_logprob]  # an index that is a list copies the rows
    groups: dict[tuple[float, ...], list[int]] = {}
    for at, choice in enumerate(choices):
        choice.restrict(rows[at : at + 1])
        groups.setdefault(choice.shape, []).append(at)
    tokens = torch.empty(len(choices), dtype=torch.long, device=rows.device)
    for shape, members in groups.items():
        part = rows[members]
        if shape:
            part = choices[members[0]].warpers(None, part).softmax(dim=-1)
            noise = torch.empty_like(part)
            for row, at in zip(noise, members, strict=True):
                row.exponential_(generator=choices[at].generator)
            # The index of the largest quotient of a probability and an exponentially distributed number is a sample of
            # the distribution. torch.multinomial uses the same method, but with one generator for all rows.
            part /= noise
        tokens[members] = part.argmax(dim=-1)
    logprobs = torch.zeros(len(choices), dtype=torch.float64, device=rows.device)
    if with_logprob:
        chosen = raw.gather(1, tokens[with_logprob].unsqueeze(1)).squeeze(1)
        logprobs[with_logprob] = (chosen - raw.logsumexp(dim=-1)).double()
    # All rows are copied to the processor at once, because each copy waits until the device has finished its work.
    for choice, token, logprob in zip(choices, *torch.stack([tokens.double(), logprobs]).tolist(), strict=True):
        choice.note(int(token), logprob)
    return tokens


class Sampler:
    """The logits processor for all requests of a batch. ``begin`` and ``end`` may be called in any thread, the other
    methods only in the manager's thread."""

    supported_kwargs: Mapping[str, type] = {KEY: int}
    ignored_kwargs: tuple[str, ...] = ()

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._lock = threading.Lock()
        self._requests: dict[int, Choices] = {}
        self._rows: list[Choices | None] = []

    def install(self, manager: Any) -> None:
        """Make this the only logits processor of ``manager``, which must not be started yet. Raises AttributeError,
        ImportError or TypeError if the library has changed."""
        from transformers import LogitsProcessorList
        from transformers.generation.continuous_batching.cb_logits_processors import (
            ContinuousBatchingLogitsProcessor,
            ContinuousBatchingLogitsProcessorList,
        )

        # Registering a virtual subclass avoids importing the library together with this module, which a real subclass
        # would do.
        ContinuousBatchingLogitsProcessor.register(type(self))
        processors = ContinuousBatchingLogitsProcessorList(LogitsProcessorList([self]))
        processors.tensors_required = 1
        if type(processors) is not type(manager.logit_processor) or not processors.do_processing:
            raise TypeError("the batching manager has other logits processors than expected")
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
        """Record to which requests the rows of the next call belong. Return one zero per request: the library requires
        a tensor, which this sampler does not use."""
        keys = [request.state.logit_processor_kwargs.get(KEY) for request in requests_with_new_token]
        with self._lock:
            self._rows = [self._requests.get(key) for key in keys]
        return self._libraries.torch.zeros(len(keys), dtype=self._libraries.torch.int32)

    def __call__(self, scores: Any, tensor_arg: Any) -> Any:
        """Return ``scores`` with only the chosen token left in each row. ``scores`` are logits in float32, with shape
        (rows, vocabulary); a processor may change them."""
        rows = [(at, one) for at, one in enumerate(self._rows[: scores.size(0)]) if one and not one.plain]
        if rows:
            places = self._libraries.torch.tensor([at for at, _ in rows], device=scores.device)
            tokens = choose_tokens(scores[places], [one for _, one in rows])
            scores[places] = float("-inf")
            scores[places, tokens] = 0.0
        return scores


class Penalties:
    """A logits processor for two options that transformers does not have: the presence and frequency penalties of
    OpenAI's API, which count only the tokens of the answer (the ids after the first ``prompt`` ids), and
    ``logit_bias``."""

    def __init__(self, torch: Any, decoding: DecodingOptions, prompt: int) -> None:
        self._torch = torch
        self._decoding = decoding
        self._prompt = prompt

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        decoding, answer = self._decoding, input_ids[0, self._prompt :]
        if answer.numel():
            counts = self._torch.bincount(answer, minlength=scores.shape[-1])
            penalty = decoding.presence_penalty * (counts > 0) + decoding.frequency_penalty * counts
            scores = scores - penalty.to(scores.dtype)
        for token, bias in decoding.logit_bias:
            if 0 <= token < scores.shape[-1]:
                scores[:, token] += bias
        return scores


def _penalties(libraries: Libraries, decoding: DecodingOptions, prompt: int) -> Any:
    """Return the logits processors that need the tokens before: Penalties, then the library's. ``prompt`` is the length
    of the prompt."""
    transformers, processors = libraries.transformers, list[Any]()
    if decoding.presence_penalty or decoding.frequency_penalty or decoding.logit_bias:
        processors.append(Penalties(libraries.torch, decoding, prompt))
    if decoding.repetition_penalty != 1.0:
        processors.append(transformers.RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty))
    return transformers.LogitsProcessorList(processors)


def _warpers(libraries: Libraries, decoding: DecodingOptions) -> Any:
    """Return the logits processors for the options of sampling, in the order in which the library's ``generate``
    applies them."""
    transformers, processors = libraries.transformers, list[Any]()
    if decoding.temperature > 0:
        if decoding.temperature != 1.0:
            processors.append(transformers.TemperatureLogitsWarper(decoding.temperature))
        if decoding.top_k:
            processors.append(transformers.TopKLogitsWarper(decoding.top_k))
        if decoding.top_p < 1.0:
            processors.append(transformers.TopPLogitsWarper(decoding.top_p))
        if decoding.min_p:
            processors.append(transformers.MinPLogitsWarper(decoding.min_p))
    return transformers.LogitsProcessorList(processors)
