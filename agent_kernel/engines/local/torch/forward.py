"""The forward of a model as its ``generate()`` would call it, on a cache that grows: slices of ids in, logits out."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from agent_kernel.engines.local.media.vision_inputs import Place, Sight
from agent_kernel.engines.local.torch.kv_cache_store import APPENDED
from agent_kernel.engines.local.torch.load import Libraries

SLICE = 512
"""Prompt tokens at once: long enough for full prefill speed, short enough that other streams keep moving."""
SAME = 0.05
"""Of the range of the logits: rounding stays far below, a lost state far above."""


class Forward:
    """Knows the names that this model's forward uses. ``sight`` is None for a model of text."""

    def __init__(self, libraries: Libraries, model: Any, sight: Sight | None) -> None:
        self._torch, self._transformers = libraries
        self._model = model
        self._sight = sight
        takes = inspect.signature(model.forward).parameters
        self._cache_name = "cache_params" if "cache_params" in takes else "past_key_values"
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._kinds = [name for name in ("token_type_ids", "mm_token_type_ids") if sight and name in takes]
        # Models whose pictures have rows and columns number positions in three dimensions; left to itself, such a model
        # goes on with the numbering of whichever request came before.
        self._numbering = getattr(getattr(model, "model", None), "get_rope_index", None)

        self.resumes = self._resumes()
        """False for models that forget a recurrent state when they are given more than one token after it (Mamba in
        transformers 5.23): found by trying."""

    def end(self, ran: int, length: int) -> int:
        """Where the slice that begins at ``ran`` should end."""
        if self.resumes:
            return min(ran + SLICE, length)
        return ran + 1 if ran else length

    def cache(self) -> Any:
        return self._transformers.DynamicCache(config=self._model.config)

    def positions(self, ids: Sequence[int], places: Sequence[Place], more: int) -> Any:
        """For a whole prompt and ``more`` tokens after it; None where the model counts by itself."""
        if self._numbering is None:
            return None
        if self._sight is None or not places:
            return self._tensor(range(len(ids) + more)).expand(3, 1, -1)
        given = self._sight.inputs([place.picture for place in places])
        given["mm_token_type_ids"] = self._sight.kinds(ids)
        takes = inspect.signature(self._numbering).parameters
        prompt = self._numbering(self._tensor(ids), **{name: given[name] for name in takes if name in given})[0]
        after = self._tensor(range(more)).expand(3, 1, -1) + prompt.max() + 1
        return self._torch.cat([prompt, after], dim=-1)

    def run(
        self,
        ids: Sequence[int],
        start: int,
        end: int,
        *,
        cache: Any,
        places: Sequence[Place] = (),
        positions: Any = None,
    ) -> Any:
        """Logits after the token before ``end``. ``start`` is where ``cache`` ends; ``places`` lie between the two."""
        given: dict[str, Any] = {self._cache_name: cache, "use_cache": True, **self._last_only}
        if positions is not None:
            given["position_ids"] = positions[..., start:end]
        if self._sight is not None and places:
            given |= self._sight.inputs([place.picture for place in places])
            # From the beginning on: tokens of one picture may look at each other, and are found by position.
            given |= dict.fromkeys(self._kinds, self._sight.kinds(ids[:end]))
        with self._torch.inference_mode():
            return self._model(input_ids=self._tensor(ids[start:end]), **given).logits[0, -1]

    def _resumes(self) -> bool:
        ids = [at % 50 for at in range(16)]
        whole, halved = self.cache(), self.cache()
        expected = self.run(ids, 0, 16, cache=whole, positions=self.positions(ids, [], 0))
        if all(type(layer).__name__ in APPENDED for layer in whole.layers):
            return True
        for start in (0, 8):
            got = self.run(ids, start, start + 8, cache=halved, positions=self.positions(ids, [], 0))
        return bool((got - expected).abs().max() <= SAME * (expected.max() - expected.min()))

    def _tensor(self, ids: Sequence[int]) -> Any:
        return self._torch.tensor([list(ids)], dtype=self._torch.long, device=self._model.device)
