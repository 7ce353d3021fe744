"""Encodes pictures for a vision model: their positions in a prompt's token ids, and the tensors for the forward pass.

It works with any model's processor: the processor replaces each placeholder in the text by as many image tokens as the
picture needs. This module does not need torchvision, but a processor that needs it cannot be loaded without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media.images import open_image

TOKENS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""The outputs of a processor that describe the text. All other outputs describe the pictures."""
COUNTS = 256


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a picture in a prompt's token ids: ``start`` is the position of its first image token, ``end``
    the position after its last one. ``key`` is a negative number that depends only on the picture's bytes."""

    start: int
    end: int
    picture: Picture
    key: int


class PictureEncoder:
    """Encodes pictures with a model's processor. ``token`` is the id of an image token. ``placeholder`` is the text
    that stands for one picture in a rendered prompt; ``spelled`` contains all texts that the processor reads as a
    placeholder."""

    def __init__(self, processor: Any, model: Any, torch: Any) -> None:
        self._processor = processor
        self._torch = torch
        self._dtype, self._device = model.dtype, model.device
        self._counts = RecentEntries[int, int](COUNTS)
        self.placeholder = str(getattr(processor, "image_token", "") or "")
        token = _image_token_id(model.config)
        if not self.placeholder or token is None:
            raise EngineError(f"Pictures are not supported for models with the processor {type(processor).__name__}.")
        self.token = token
        self.spelled = tuple({self.placeholder, str(processor.tokenizer.convert_ids_to_tokens(token))})

    def ids(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        """Return the token ids of a rendered prompt. Raises InvalidRequest if a picture cannot be read, or if the
        prompt does not contain exactly one placeholder per picture."""
        places = text.count(self.placeholder)
        if places != len(pictures):
            raise InvalidRequest(f"The prompt has places for {places} pictures, but the request has {len(pictures)}.")
        return [int(token) for token in self._process(text, pictures)["input_ids"][0]]

    def places(self, ids: Sequence[int], pictures: Sequence[Picture]) -> list[Place]:
        """Return the position of each picture in ``ids``, in order. Raises InvalidRequest if ``ids`` was not encoded
        with these pictures."""
        positions = [at for at, token in enumerate(ids) if token == self.token]
        located: list[Place] = []
        for picture in pictures:
            key = _key(picture)
            count = self._count(key, picture)
            own, positions = positions[:count], positions[count:]
            if len(own) < count or not own:
                raise InvalidRequest("The prompt was not encoded with the pictures of this request.")
            located.append(Place(own[0], own[-1] + 1, picture, key))
        if positions:
            raise InvalidRequest("The prompt has places for more pictures than the request has.")
        return located

    def inputs(self, pictures: Sequence[Picture]) -> dict[str, Any]:
        """Return the keyword arguments for the pictures with which to call the model, in addition to the token ids."""
        processed = self._process(self.placeholder * len(pictures), pictures)
        return {name: self._to_device(value) for name, value in processed.items() if name not in TOKENS}

    def kinds(self, ids: Sequence[int]) -> Any:
        """Return a tensor of shape (1, length of ``ids``): 1 for each image token, 0 for each text token."""
        return self._torch.tensor([[int(token == self.token) for token in ids]], device=self._device)

    def _count(self, key: int, picture: Picture) -> int:
        """Return the number of image tokens of this picture."""
        if key not in self._counts:
            self._counts[key] = self.ids(self.placeholder, [picture]).count(self.token)
        return self._counts[key]

    def _process(self, text: str, pictures: Sequence[Picture]) -> Any:
        images = [open_image(picture) for picture in pictures]
        # The special tokens at the beginning of a prompt come from the chat template.
        return self._processor(text=text, images=images or None, return_tensors="pt", add_special_tokens=False)

    def _to_device(self, value: Any) -> Any:
        if not isinstance(value, self._torch.Tensor):
            return value
        return value.to(self._device, self._dtype if value.is_floating_point() else None)


def _key(picture: Picture) -> int:
    return -1 - int.from_bytes(hashlib.sha256(picture.data).digest()[:15])


def _image_token_id(config: Any) -> int | None:
    for name in ("image_token_id", "image_token_index"):
        token = getattr(config, name, None)
        if isinstance(token, int):
            return token
    return None
