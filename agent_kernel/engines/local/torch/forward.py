"""Calls a model's ``forward`` in the same way as its ``generate()`` does: it passes slices of ids and a growing cache,
and gets logits."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from agent_kernel.engines.local.media.vision_inputs import PictureEncoder, Place
from agent_kernel.engines.local.torch.kv_cache_store import APPENDED
from agent_kernel.engines.local.torch.load import Libraries

SLICE = 512
"""Number of prompt tokens per call: large enough for full prefill speed, and small enough that other streams are not
delayed."""
SAME = 0.05
"""Largest difference between two computations that counts as a rounding error, as a share of the range of the logits.
Rounding errors are far smaller; a lost state causes far larger differences."""


class Forward:
    """Calls one model's ``forward`` with the argument names that it accepts. ``picture_encoder`` encodes pictures; it
    is None for a text model."""

    def __init__(self, libraries: Libraries, model: Any, picture_encoder: PictureEncoder | None) -> None:
        self._torch, self._transformers = libraries
        self._model = model
        self._picture_encoder = picture_encoder
        takes = inspect.signature(model.forward).parameters
        self._cache_name = "cache_params" if "cache_params" in takes else "past_key_values"
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._kinds = [name for name in ("token_type_ids", "mm_token_type_ids") if picture_encoder and name in takes]
        # Some vision models number positions in three dimensions. Without explicit positions such a model continues the
        # numbering of the previous request.
        self._numbering = getattr(getattr(model, "model", None), "get_rope_index", None)

        self.resumes = self._resumes()
        """Whether a prompt can be computed in slices, which a test run determines. False for models that lose their
        recurrent state when more than one token follows it (Mamba in transformers 5.23)."""

    def end(self, start: int, length: int) -> int:
        """Return the position at which the slice of a prompt of ``length`` tokens ends that begins at ``start``."""
        if self.resumes:
            return min(start + SLICE, length)
        return start + 1 if start else length

    def cache(self) -> Any:
        return self._transformers.DynamicCache(config=self._model.config)

    def positions(self, ids: Sequence[int], places: Sequence[Place], extra: int) -> Any:
        """Return the position numbers of a whole prompt and of ``extra`` tokens after it; None if the model numbers
        them itself. ``places`` are the pictures in the prompt."""
        if self._numbering is None:
            return None
        if self._picture_encoder is None or not places:
            return self._tensor(range(len(ids) + extra)).expand(3, 1, -1)
        inputs = self._picture_encoder.inputs([place.picture for place in places])
        inputs["mm_token_type_ids"] = self._picture_encoder.kinds(ids)
        takes = inspect.signature(self._numbering).parameters
        prompt = self._numbering(self._tensor(ids), **{name: inputs[name] for name in takes if name in inputs})[0]
        after = self._tensor(range(extra)).expand(3, 1, -1) + prompt.max() + 1
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
        """Run the model on the ids from ``start`` to ``end`` and return the logits for the next token. ``cache`` must
        contain the ids before ``start``. ``places`` are the pictures between ``start`` and ``end``."""
        inputs: dict[str, Any] = {self._cache_name: cache, "use_cache": True, **self._last_only}
        if positions is not None:
            inputs["position_ids"] = positions[..., start:end]
        if self._picture_encoder is not None and places:
            inputs |= self._picture_encoder.inputs([place.picture for place in places])
            # The model finds the tokens of a picture by their positions, so it needs the kinds of all tokens from the
            # beginning of the prompt.
            inputs |= dict.fromkeys(self._kinds, self._picture_encoder.kinds(ids[:end]))
        with self._torch.inference_mode():
            return self._model(input_ids=self._tensor(ids[start:end]), **inputs).logits[0, -1]

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
