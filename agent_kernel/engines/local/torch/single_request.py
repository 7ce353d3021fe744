"""One request on a model that runs one request at a time: its prompt in slices, then one token per step."""

from __future__ import annotations

from collections.abc import Sequence

from agent_kernel.engines.local.backend import StepOutput
from agent_kernel.engines.local.media.vision_inputs import Place
from agent_kernel.engines.local.torch.forward import Forward
from agent_kernel.engines.local.torch.kv_cache_store import KeptState
from agent_kernel.engines.local.torch.load import Libraries
from agent_kernel.engines.local.torch.sampler import Choices


class SingleRun:
    """``begun`` is the part of the prompt ``ids`` that is computed already; ``keys`` identify the tokens as in kept
    caches."""

    def __init__(
        self,
        libraries: Libraries,
        forward: Forward,
        ids: Sequence[int],
        *,
        keys: Sequence[int],
        places: Sequence[Place],
        begun: KeptState,
        choices: Choices,
        end_ids: frozenset[int],
    ) -> None:
        self._torch = libraries.torch
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
        """A step raised: what is computed can not be trusted."""

    @property
    def at_answer(self) -> bool:
        """The prompt is computed, and nothing after it."""
        return self._ran == self._prompt

    @property
    def state(self) -> KeptState:
        """All that is computed so far."""
        return KeptState(tuple(self._keys[: self._ran]), self._cache, self._logits)

    def step(self) -> StepOutput | None:
        """Return a token, or None after a slice of the prompt with more to come."""
        if self._ran < len(self._ids):
            self._run_slice()
        if self._ran < len(self._ids):
            return None
        reused, self._reused = self._reused, None
        token = self._choose()
        if token in self._end_ids:
            return StepOutput((), (), "stop", reused)
        self._ids.append(token)
        self._keys.append(token)
        logprobs = (self._choices.logprobs[-1],) if self._choices.decoding.logprob else ()
        cut = len(self._ids) - self._prompt >= self._max_tokens
        return StepOutput((token,), logprobs, "length" if cut else "", reused)

    def _run_slice(self) -> None:
        end = self._forward.end(self._ran, len(self._ids))
        shown = 0
        for place in self._places:
            # A picture is run in one piece, with the text before it.
            if place.start < end:
                shown, end = shown + 1, max(end, place.end)
        given = {"cache": self._cache, "places": self._places[:shown], "positions": self._positions}
        self._logits = self._forward.run(self._ids, self._ran, end, **given)
        self._ran = end
        self._places = self._places[shown:]

    def _choose(self) -> int:
        """The library's own processors, after the log probability and the grammar's mask."""
        choices = self._choices
        row = self._logits.float().reshape(1, -1).clone()
        raw = row.clone() if choices.decoding.logprob else None
        if choices.constraint is not None:
            choices.constraint.mask(row)
        if choices.warpers:
            row = choices.warpers(self._torch.tensor([choices.seen], device=row.device), row)
        if choices.generator is None:
            token = int(row.argmax())
        else:
            token = int(self._torch.multinomial(row.softmax(-1), 1, generator=choices.generator))
        if raw is not None:
            choices.logprobs.append(float(raw[0, token] - raw.logsumexp(-1)))
        if choices.constraint is not None:
            choices.constraint.accept(token)
        if choices.seen:
            choices.seen.append(token)
        return token
