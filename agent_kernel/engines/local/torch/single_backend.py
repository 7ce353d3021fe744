"""Runs models that cannot be batched, and models that take pictures. The KV caches of requests are kept for later ones.

Like ``generate()``, it calls the model's ``forward`` once for each token, with a KV cache. The requests alternate: each
step computes one token, or one slice of the prompt, of one request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import (
    ChatMessage,
    DecodingOptions,
    LoadedModel,
    LoadOptions,
    Picture,
    Progress,
    StepOutput,
)
from agent_kernel.engines.local.media.vision_chat_template import PictureTemplate
from agent_kernel.engines.local.media.vision_inputs import PictureEncoder, Place
from agent_kernel.engines.local.system_memory import GIB, read_memory
from agent_kernel.engines.local.torch.forward import Forward
from agent_kernel.engines.local.torch.grammar import Constraint, Grammars
from agent_kernel.engines.local.torch.kv_cache_store import NOTHING, KeptCaches, KeptState, can_crop, fork_cache
from agent_kernel.engines.local.torch.load import TorchModel, import_libraries, load_model
from agent_kernel.engines.local.torch.sampler import Choices, choose_tokens

DEFAULT_SHARE = 8
"""If ``cache_gb`` is not set, the kept caches may take the free memory divided by this number."""
AT_ONCE = 4
LEAST_KEPT = 64 * 2**20
STEPS = 32
"""Estimate of how many times faster a prompt is computed in one call than token by token."""
ASSUMED_FREE = GIB
"""Free memory in bytes that is assumed if the system does not report it."""


class GenerateBackend:
    """Decodes up to AT_ONCE requests at the same time: each step computes a token of one request, and the requests take
    turns. Their number is limited, because each request needs a cache of its own."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._runs: dict[int, SingleRun] = {}
        self._turns: deque[int] = deque()
        self._next = 0

    def load(self, path: Path, options: LoadOptions, progress: Progress) -> LoadedModel:
        return self.adopt(load_model(path, options, self._cache_dir, progress), options)

    def adopt(self, loaded: TorchModel, options: LoadOptions) -> LoadedModel:
        """Run a model that ``load_model`` has already loaded, and return its description."""
        self._libraries = import_libraries()
        self._loaded = loaded
        self._picture_encoder: PictureEncoder | None = None
        self._template: PictureTemplate | None = None
        if loaded.processor is not None:
            picture_encoder = self._picture_encoder = PictureEncoder(
                loaded.processor, loaded.model, self._libraries.torch
            )
            self._template = PictureTemplate(loaded.processor, picture_encoder.placeholder, picture_encoder.spelled)
        self._forward = Forward(self._libraries, loaded.model, self._picture_encoder)
        self._grammars: Grammars | None = None
        free = _free_memory(self._libraries.torch, loaded.device)
        self._budget = int(options.cache_gb * GIB) or max(LEAST_KEPT, free // DEFAULT_SHARE)
        self._kept = KeptCaches(self._budget if options.prefixes else 0)
        details = {**loaded.details, "decoding": "one by one", "cache_gb": round(self._budget / GIB, 2)}
        return LoadedModel(
            block=1,
            blocks=0,  # each request reports how many tokens it reused
            details=details,
            template=loaded.template,
            architecture=loaded.architecture,
            context_length=loaded.context_length,
            sees=self._picture_encoder is not None,
            parameters=loaded.parameters,
            response_template=loaded.response_template,
            at_once=options.at_once or AT_ONCE,
        )

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return (self._template or self._loaded).render(messages, tools)

    def encode(self, text: str) -> list[int]:
        return self._loaded.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._loaded.decode(ids)

    def encode_pictures(self, text: str, pictures: Sequence[Picture]) -> list[int]:
        """Return the token ids of a rendered prompt, in which each picture replaces its placeholder. Raises EngineError
        for a model without vision, and InvalidRequest for a picture that cannot be read."""
        return self._require_encoder().ids(text, pictures)

    def submit(self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()) -> int:
        places = self._require_encoder().places(ids, pictures) if pictures else []
        keys = _keys(ids, places)
        choices = Choices(self._libraries, ids, decoding, self._constraint(decoding), self._loaded.device)
        begun = self._kept.longest(keys, lambda at: _cut(at, places))
        if not self._forward.resumes and len(keys) - len(begun.keys) > max(STEPS, len(keys) // STEPS):
            begun = NOTHING  # one step for the whole prompt is faster than one step for each token of its rest
        end_ids = self._loaded.end_ids
        run = SingleRun(self._forward, ids, keys=keys, places=places, begun=begun, choices=choices, end_ids=end_ids)
        self._keep_prompt(run)
        self._next += 1
        self._runs[self._next] = run
        self._turns.append(self._next)
        return self._next

    def step(self) -> list[tuple[int, StepOutput]]:
        """Compute one token, or one slice of the prompt, for the request whose turn it is. Return its key and output,
        or an empty list if there is no output yet."""
        if not self._turns:
            return []
        key = self._turns.popleft()
        run = self._runs[key]
        piece = self._advance(run)
        if piece is None or not piece.finish:
            self._turns.append(key)
        else:
            del self._runs[key]
            self._keep(run)
        return [(key, piece)] if piece is not None else []

    def cancel(self, key: int) -> None:
        """Remove the request; its computed cache is kept."""
        run = self._runs.pop(key, None)
        if run is not None:
            self._turns.remove(key)
            self._keep(run)

    def running(self) -> int:
        return len(self._runs)

    def usage(self) -> Mapping[str, float]:
        """Return figures for a status display. ``kept`` is the number of kept states of conversations, ``cache_used``
        the share of the budget that they occupy."""
        return {"cache_used": self._kept.bytes / self._budget, "kept": len(self._kept)}

    def _advance(self, run: SingleRun) -> StepOutput | None:
        """Run one step of a request and return its output. An error, such as one from a picture that the model cannot
        process, ends only this request."""
        before = run.at_answer
        try:
            piece = run.step()
        except (MemoryError, self._libraries.torch.OutOfMemoryError):
            self._kept.clear()
            run.failed = True
            return StepOutput(
                (),
                finish="refused",
                error=(
                    "The memory was full, so the request ended and the caches of conversations were removed. Ask again."
                ),
            )
        except Exception as error:  # noqa: BLE001  a model's code may raise anything
            run.failed = True
            return StepOutput((), finish="refused", error=f"The model failed: {type(error).__name__}: {error}")
        if not before:
            self._keep_prompt(run)
        return piece

    def _keep_prompt(self, run: SingleRun) -> None:
        """Keep the state after the prompt if a later state cannot be cut back to it. A later prompt that begins with
        this prompt but continues differently can then reuse this state."""
        if run.at_answer and not can_crop(run.state.cache):
            self._keep(run)

    def _keep(self, run: SingleRun) -> None:
        state = run.state
        if state.logits is not None and not run.failed:
            self._kept.add(replace(state, cache=fork_cache(state.cache)))

    def _constraint(self, decoding: DecodingOptions) -> Constraint | None:
        if decoding.grammar is None:
            return None
        if self._grammars is None:
            self._grammars = Grammars(self._loaded)
        return self._grammars.begin(decoding.grammar)

    def _require_encoder(self) -> PictureEncoder:
        if self._picture_encoder is None:
            raise EngineError("This model reads text only.", hint="Choose a model that takes images.")
        return self._picture_encoder


def _keys(ids: Sequence[int], places: Sequence[Place]) -> list[int]:
    keys = list(ids)
    for place in places:
        keys[place.start : place.end] = [place.key] * (place.end - place.start)
    return keys


def _cut(at: int, places: Sequence[Place]) -> int:
    """Return ``at``, or the beginning of the picture that contains this position, because no prompt may be cut inside a
    picture."""
    return next((place.start for place in places if place.start < at < place.end), at)


def _free_memory(torch: Any, device: str) -> int:
    """Return the free memory in bytes of the device that holds the model."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    memory = read_memory()
    return memory.available if memory else ASSUMED_FREE


# Runs one request on a model that is not batched: first its prompt in slices, then one token per step.


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
