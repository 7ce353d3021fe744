"""How a model that sees takes pictures: their places in a prompt's ids, and the numbers that go in there.

Over the library's processors, whatever the model: the processor fills a placeholder in the text with as many image
tokens as a picture needs. Run without torchvision; processors that need it do not load there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media.images import opened

TOKENS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""What a processor says of the text; the rest of what it gives is of the pictures."""
COUNTS = 256


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a prompt's ids a picture stands: from its first image token to behind its last. ``key``, below 0, is the
    same for the same bytes."""

    start: int
    end: int
    picture: Picture
    key: int


class Sight:
    """``placeholder`` stands for a picture in a rendered prompt, once each; ``spelled`` are all texts that do."""

    def __init__(self, processor: Any, model: Any, torch: Any) -> None:
        self._processor = processor
        self._torch = torch
        self._dtype, self._device = model.dtype, model.device
        self._counts: OrderedDict[int, int] = OrderedDict()
        self.placeholder = str(getattr(processor, "image_token", "") or "")
        token = _image_token_id(model.config)
        if not self.placeholder or token is None:
            raise EngineError(f"How {type(processor).__name__} takes pictures is not known here.")
        self.token = token
        self.spelled = tuple({self.placeholder, str(processor.tokenizer.convert_ids_to_tokens(token))})

    def ids(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        """Raises InvalidRequest when a picture can not be read, or text and pictures do not fit together."""
        places = text.count(self.placeholder)
        if places != len(pictures):
            raise InvalidRequest(f"The prompt has places for {places} pictures and there are {len(pictures)}.")
        return [int(token) for token in self._processed(text, pictures)["input_ids"][0]]

    def places(self, ids: Sequence[int], pictures: Sequence[Picture]) -> list[Place]:
        """In order. Raises InvalidRequest when these are not the pictures the ids were made with."""
        positions = [at for at, token in enumerate(ids) if token == self.token]
        found: list[Place] = []
        for picture in pictures:
            key = _key(picture)
            count = self._count(key, picture)
            own, positions = positions[:count], positions[count:]
            if len(own) < count or not own:
                raise InvalidRequest("The prompt and its pictures do not fit together.")
            found.append(Place(own[0], own[-1] + 1, picture, key))
        if positions:
            raise InvalidRequest("The prompt has places for more pictures than there are.")
        return found

    def inputs(self, pictures: Sequence[Picture]) -> dict[str, Any]:
        """What the model's forward takes beside the ids in which these pictures stand."""
        processed = self._processed(self.placeholder * len(pictures), pictures)
        return {name: self._placed(value) for name, value in processed.items() if name not in TOKENS}

    def kinds(self, ids: Sequence[int]) -> Any:
        """1 for each token of a picture, 0 for text, from the beginning of the prompt on."""
        return self._torch.tensor([[int(token == self.token) for token in ids]], device=self._device)

    def _count(self, key: int, picture: Picture) -> int:
        """Image tokens of this picture by itself."""
        if key not in self._counts:
            self._counts[key] = self.ids(self.placeholder, [picture]).count(self.token)
            if len(self._counts) > COUNTS:
                self._counts.popitem(last=False)
        return self._counts[key]

    def _processed(self, text: str, pictures: Sequence[Picture]) -> Any:
        images = [opened(picture) for picture in pictures]
        # Templates write the special tokens that begin a prompt.
        return self._processor(text=text, images=images or None, return_tensors="pt", add_special_tokens=False)

    def _placed(self, value: Any) -> Any:
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
