"""Prints what models that run one request at a time reuse and answer, as JSON: ``python generate_facts.py DIRECTORY
KIND...``.

Runs in an interpreter that has torch, in float32, so that reuse does not change an answer by rounding.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import PIL.Image
import torch

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.engines.local.backend import DecodingOptions, LoadOptions, OutputGrammar, Picture, StepOutput
from agent_kernel.engines.local.media.images import open_image
from agent_kernel.engines.local.torch.load import load_model
from agent_kernel.engines.local.torch.single_backend import GenerateBackend
from tests.engines.local import tiny_models

LONG = "Once upon a time a fox met a crow who held a piece of cheese. "


class Answer:
    """One request that ran to its end, with its pieces."""

    def __init__(self, backend: GenerateBackend, ids: Sequence[int], pictures: Sequence[Picture] = (), **how: Any):
        key = backend.submit(ids, DecodingOptions(**({"max_tokens": 6, "logprob": True} | how)), pictures)
        pieces: list[StepOutput] = []
        while not pieces or not pieces[-1].finish:
            pieces += [piece for told, piece in backend.step() if told == key]
        self.ids = [token for piece in pieces for token in piece.ids]
        self.logprobs = [number for piece in pieces for number in piece.logprobs]
        self.finish, self.error = pieces[-1].finish, pieces[-1].error
        self.reused = [piece.reused for piece in pieces]


def main() -> None:
    directory = Path(sys.argv[1])
    facts = {}
    for kind in sys.argv[2:]:
        torch.manual_seed(7)
        tiny_models.KINDS[kind](directory / kind)
        facts[kind] = facts_of(directory / kind, directory)
    print(json.dumps(facts))


def load_backend(path: Path, cache: Path, **options: Any) -> tuple[GenerateBackend, Any]:
    backend = GenerateBackend(cache)
    given = LoadOptions(**({"precision": "fp32", "device": "cpu"} | options))
    return backend, backend.load(path, given, lambda stage, fraction: None)


def facts_of(path: Path, cache: Path) -> dict[str, Any]:
    backend, told = load_backend(path, cache)
    fresh, _ = load_backend(path, cache, prefixes=False)
    found = {"sees": told.sees, "context_length": told.context_length, "architecture": told.architecture}
    found |= text_facts(backend, fresh) | sampling_facts(backend) | line_facts(backend)
    found["as the library"] = same_as_the_library(path, cache, fresh, sees=told.sees)
    if told.sees:
        found |= picture_facts(backend, fresh)
    else:
        found["no pictures"] = refusal(lambda: backend.encode_pictures("x", [picture(1)]))
    small, _ = load_backend(path, cache, cache_gb=1e-9)
    Answer(small, prompt_of(small, LONG))
    found["too small a cache"] = [small.usage()["kept"], Answer(small, prompt_of(small, LONG)).reused[0]]
    return found


def same_as_the_library(path: Path, cache: Path, backend: GenerateBackend, *, sees: bool) -> bool:
    """Return True if the backend answers as the library does: its ``generate()``, greedy, on its processor's encoding
    of the prompt.
    """
    own = load_model(path, LoadOptions(precision="fp32", device="cpu"), cache, lambda stage, fraction: None)
    shown = [picture(1), picture(2)] if sees else []
    content: list[dict[str, Any]] = [{"type": "image"} for _ in shown] + [{"type": "text", "text": LONG}]
    text = backend.render([{"role": "user", "content": content if sees else LONG}])
    ids = backend.encode_pictures(text, shown) if sees else backend.encode(text)
    images = {"images": [open_image(one) for one in shown]} if sees else {}
    reader: Any = own.processor if sees else own.tokenizer
    given = reader(text=text, **images, return_tensors="pt", add_special_tokens=False)
    written = own.model.generate(**given, max_new_tokens=6, do_sample=False)[0, len(ids) :].tolist()
    return Answer(backend, ids, shown).ids == [token for token in written if token not in own.end_ids]


def prompt_of(backend: GenerateBackend, text: str) -> list[int]:
    return backend.encode(backend.render([{"role": "user", "content": text}]))


def text_facts(backend: GenerateBackend, fresh: GenerateBackend) -> dict[str, Any]:
    prompt = prompt_of(backend, LONG * 10)  # longer than a slice of a prompt
    first = Answer(backend, prompt)
    again = Answer(backend, prompt)
    following = [*prompt, *first.ids, *backend.encode("<|end|>\n<|start|>user\nAnd?")]
    second, cold = Answer(backend, following), Answer(fresh, following)
    edited = [*prompt, *backend.encode(" Or?")]
    edit, cold_edit = Answer(backend, edited), Answer(fresh, edited)
    return {
        "prompt": len(prompt),
        "first": [first.reused[0], first.reused[1:], first.finish, len(first.ids)],
        "again": [again.reused[0], again.ids == first.ids],
        "next": [len(following), second.reused[0], second.ids == cold.ids, cold.reused[0]],
        "edit": [edit.reused[0], edit.ids == cold_edit.ids],
        "logprobs": all(number <= 0 for number in first.logprobs) and len(first.logprobs) == len(first.ids),
        "usage": backend.usage(),
    }


def sampling_facts(backend: GenerateBackend) -> dict[str, Any]:
    prompt = prompt_of(backend, LONG)
    hot: dict[str, Any] = {"temperature": 1.5, "top_k": 50, "top_p": 0.99, "min_p": 0.001, "repetition_penalty": 1.1}
    seeds = [Answer(backend, prompt, **hot, seed=seed).ids for seed in (3, 3, 4)]
    free = Answer(backend, prompt, max_tokens=1)
    bound = Answer(backend, prompt, grammar=OutputGrammar("regex", "(yes|no)!"))
    ebnf = Answer(backend, prompt, grammar=OutputGrammar("ebnf", 'root ::= "(" [a-c] ")"'))
    pushed, banned = backend.encode("?")[0], ((free.ids[0], -100.0),)
    return {
        "logit_bias": [
            Answer(backend, prompt, max_tokens=1, logit_bias=((pushed, 100.0),)).ids == [pushed],
            Answer(backend, prompt, max_tokens=1, logit_bias=banned).ids != free.ids,
            Answer(backend, prompt, max_tokens=1, logit_bias=((10**9, 100.0),)).ids == free.ids,
        ],
        "seeds": [seeds[0] == seeds[1], seeds[0] != seeds[2]],
        "top_k 1 is greedy": Answer(backend, prompt, temperature=2.0, top_k=1, max_tokens=1).ids == free.ids,
        "regex": [backend.decode(bound.ids), bound.finish],
        "ebnf": [backend.decode(ebnf.ids), ebnf.finish],
        "bad grammar": refusal(lambda: backend.submit(prompt, DecodingOptions(4, grammar=OutputGrammar("regex", "(")))),
        "masked logprob": sum(bound.logprobs) < -1.0,  # of the model, not of the grammar, which leaves one or two
    }


def line_facts(backend: GenerateBackend) -> dict[str, Any]:
    """Return how three concurrent requests are served, one of which is cancelled."""
    prompts = [prompt_of(backend, f"{number} {LONG}") for number in range(3)]
    keys = [backend.submit(prompt, DecodingOptions(max_tokens=6)) for prompt in prompts]
    order: list[int] = []
    for _ in range(5):
        order += [key for key, _ in backend.step()]
    backend.cancel(keys[1])
    backend.cancel(999)
    while backend.running():
        order += [key for key, _ in backend.step()]
    alone = Answer(backend, prompts[1])
    return {
        "order": [keys.index(key) for key in order],
        "left": backend.running(),
        "cancelled prompt": [len(prompts[1]), alone.reused[0]],
    }


def picture(seed: int, mode: str = "RGB") -> Picture:
    image = PIL.Image.effect_noise((40, 60 + seed), 90.0 + seed).convert(mode)
    out = io.BytesIO()
    image.save(out, "PNG")
    return Picture("image/png", out.getvalue())


def picture_facts(backend: GenerateBackend, fresh: GenerateBackend) -> dict[str, Any]:
    one, other = picture(1), picture(2)
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is on <image> this?"}]}
    ]
    text = backend.render(asked)
    ids = {name: backend.encode_pictures(text, [shown]) for name, shown in (("one", one), ("other", other))}
    first, changed = Answer(backend, ids["one"], [one]), Answer(backend, ids["other"], [other])
    again = Answer(backend, ids["one"], [one])
    more = [*asked, {"role": "assistant", "content": "A fox."}]
    more.append({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And here?"}]})
    longer = backend.encode_pictures(backend.render(more), [one, other])
    second, cold = Answer(backend, longer, [one, other]), Answer(fresh, longer, [one, other])
    result = [*asked, {"role": "tool", "content": [{"type": "text", "text": "Output"}, {"type": "image"}]}]
    return {
        "shown": [first.finish, first.error, not near(first, changed), near(again, first)],
        "picture reused": [len(ids["one"]), again.reused[0], changed.reused[0]],
        "second picture": [len(longer), second.reused[0], second.ids == cold.ids, near(second, cold)],
        "tool picture": len(backend.encode_pictures(backend.render(result), [one, other])) > len(ids["one"]),
        "transparent": Answer(backend, backend.encode_pictures(text, [clear := picture(3, "LA")]), [clear]).error,
        "too few": refusal(lambda: backend.encode_pictures(text, [])),
        "other pictures": refusal(lambda: backend.submit(ids["one"], DecodingOptions(4), [one, other])),
        "broken": refusal(lambda: backend.encode_pictures(text, [Picture("image/png", b"\x89PNG\r\n\x1a\nno")])),
    }


def near(one: Answer, other: Answer) -> bool:
    """Return True if two runs have the same tokens and, except for rounding, the same log probabilities."""
    pairs = zip(one.logprobs, other.logprobs, strict=True)
    return one.ids == other.ids and max(abs(a - b) for a, b in pairs) < 1e-3


def refusal(work: Any) -> str:
    try:
        work()
    except AgentKernelError as error:
        return error.code
    return "none"


if __name__ == "__main__":
    main()
