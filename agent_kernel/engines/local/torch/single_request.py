"""Runs one request on a model that is not batched: first its prompt in slices, then one token per step."""

from __future__ import annotations

from collections.abc import Sequence

from agent_kernel.engines.local.backend import StepOutput
from agent_kernel.engines.local.media.vision_inputs import Place
from agent_kernel.engines.local.torch.forward import Forward
from agent_kernel.engines.local.torch.kv_cache_store import KeptState
from agent_kernel.engines.local.torch.sampler import Choices, choose_tokens


class SingleRun:
    """One request while it runs. ``ids`` are the token ids of its prompt, and ``keys`` identify these tokens as in
    ``KeptState``. ``begun`` is the kept state after the first tokens of the prompt; the run continues from it and
    changes the cache in it. ``places`` are the pictures with their positions in the prompt."""

    def __init__(
        self,
        forward: Forward,
        ids: Sequence[int],
        *,
        keys: Sequence[int],
        places: Sequence[Place],
        begun: KeptState,
        choices: Choices,
        end_ids: frozenset[int],
    ) -> None:
        self._forward = forward
        self._ids, self._keys = list(ids), list(keys)
        self._prompt = len(self._ids)
        self._places = [place for place in places if place.start >= len(begun.keys)]
        self._cache = forward.cache() if begun.cache is None else begun.cache
        self._ran, self._logits = len(begun.keys), begun.logits
        self._reused: int | None = len(begun.keys)
        self._max_tokens = choices.decoding.max_tokens
        self._positions = forward.positions(self._ids, places, self._max_tokens)
        self._choices = choices
        self._end_ids = end_ids
        self.failed = False
        """Whether a step raised an error, so that the computed state cannot be trusted."""

    @property
    def at_answer(self) -> bool:
        """Whether the whole prompt is computed, but no token of the answer yet."""
        return self._ran == self._prompt

    @property
    def state(self) -> KeptState:
        """The state after the tokens that are computed so far, from which a later request can continue."""
        return KeptState(tuple(self._keys[: self._ran]), self._cache, self._logits)

    def step(self) -> StepOutput | None:
        """Compute the next slice of the prompt if one is left, and then one token of the answer. Return the token, or
        None if further slices of the prompt have to be computed first."""
        if self._ran < len(self._ids):
            self._run_slice()
        if self._ran < len(self._ids):
            return None
        reused, self._reused = self._reused, None
        # The logits are copied, because they are kept with the cache and choosing a token changes them.
        logits = self._logits.float().reshape(1, -1).clone()
        token = int(choose_tokens(logits, [self._choices])[0])
        if token in self._end_ids:
            return StepOutput((), (), "stop", reused)
        self._ids.append(token)
        self._keys.append(token)
        logprobs = (self._choices.logprobs[-1],) if self._choices.decoding.logprob else ()
        cut = len(self._ids) - self._prompt >= self._max_tokens
        return StepOutput((token,), logprobs, "length" if cut else "", reused)

    def _run_slice(self) -> None:
        end = self._forward.end(self._ran, len(self._ids))
        pictures = 0
        for place in self._places:
            # A picture must be computed in one piece; the text before it may be in the same slice.
            if place.start < end:
                pictures, end = pictures + 1, max(end, place.end)
        self._logits = self._forward.run(
            self._ids,
            self._ran,
            end,
            cache=self._cache,
            places=self._places[:pictures],
            positions=self._positions,
        )
        self._ran = end
        self._places = self._places[pictures:]
