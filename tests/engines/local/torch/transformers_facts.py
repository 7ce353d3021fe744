"""Prints how the transformers backend behaves with models of random weights, as JSON: ``python transformers_facts.py
DIR PART``.

Runs in an interpreter that has torch, in float32, so that reuse and batching do not change an answer by rounding.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.generation.continuous_batching import cb_logits_processors

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.engines.local.backend import DecodingOptions, LoadedModel, LoadOptions, OutputGrammar, StepOutput
from agent_kernel.engines.local.torch.batched_backend import Transformers, Unbatchable
from agent_kernel.engines.local.torch.paged_cache import BLOCK, bytes_per_block
from tests.engines.local import tiny_models

TEXT = "Once upon a time a fox met a crow who held a piece of cheese in its beak. "
BLOCKS = 64
SMALL = 8
ROUNDS = 60
PATIENCE_S = 60.0
WEIGHTS = "model.safetensors"
CONVERTING = "converting the model (once)"


class Answer:
    """The answer to one request."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.finish = ""
        self.reused: int | None = None

    def add(self, piece: StepOutput) -> None:
        self.ids += piece.ids
        self.logprobs += piece.logprobs
        self.finish = piece.finish
        self.reused = self.reused if piece.reused is None else piece.reused


class Run:
    """A loaded backend with ``blocks`` in its cache."""

    def __init__(self, directory: Path, kind: str = "llama", blocks: int = BLOCKS, **options: Any) -> None:
        self.backend = Transformers(directory)
        path = directory / kind
        if not path.exists():
            torch.manual_seed(7)
            KINDS[kind](path)
        # 2 layers, 1 key-value head of 16 numbers, in float32: the sizes of tiny_models.
        sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
        size = bytes_per_block(type("Config", (), sizes), 4)
        given: dict[str, Any] = {"precision": "fp32", "device": "cpu", "cache_gb": blocks * size / 2**30} | options
        self.loaded: LoadedModel = self.backend.load(path, LoadOptions(**given), lambda stage, fraction: None)

    def ask(self, *requests: tuple[Sequence[int], DecodingOptions]) -> list[Answer]:
        """Run all requests at the same time, to their ends. Return the answers."""
        answers = {self.backend.submit(ids, decoding): Answer() for ids, decoding in requests}
        self.finish(answers)
        return list(answers.values())

    def one(self, ids: Sequence[int], **how: Any) -> Answer:
        return self.ask((ids, DecodingOptions(**{"max_tokens": 12} | how)))[0]

    def finish(self, answers: Mapping[int, Answer]) -> None:
        until = time.monotonic() + PATIENCE_S
        while any(not answer.finish for answer in answers.values()) and time.monotonic() < until:
            for key, piece in self.backend.step():
                if key in answers:
                    answers[key].add(piece)

    def text(self, answer: Answer) -> str:
        return self.backend.decode(answer.ids)

    def prompt(self, tokens: int, first: str = "") -> list[int]:
        """Return a prompt of ``tokens`` tokens, one letter each."""
        return self.backend.encode((first + TEXT * (tokens // len(TEXT) + 1))[:tokens])

    def used(self) -> float:
        """Return the share of the cache that running requests use, after the manager's thread has processed
        cancellations.
        """
        until = time.monotonic() + PATIENCE_S
        while self.backend.usage()["cache_used"] > 0 and time.monotonic() < until:
            time.sleep(0.02)
        return self.backend.usage()["cache_used"]


def wide(directory: Path) -> None:
    """Write a model of larger layers: bitsandbytes quantizes 64 numbers of a row together."""
    words = tiny_models.tokenizer()
    sizes = tiny_models.decoder_sizes(hidden_size=128, intermediate_size=256, head_dim=64, num_key_value_heads=2)
    config = transformers.LlamaConfig(**sizes, **tiny_models.ids(words))
    tiny_models.save(directory, transformers.LlamaForCausalLM(config), words)


KINDS: Mapping[str, Callable[[Path], None]] = MappingProxyType({**tiny_models.KINDS, "wide": wide})


def refusal(work: Callable[[], Any]) -> list[str]:
    """Return the class and the message of the error that ``work`` raises, or an empty list."""
    try:
        work()
    except (AgentKernelError, Unbatchable) as error:
        return [type(error).__name__, str(error)]
    return []


def grammars(directory: Path) -> dict[str, Any]:
    run = Run(directory)
    prompt = run.prompt(40)
    digits, ends = OutputGrammar("regex", "[0-9]{3}"), OutputGrammar("ebnf", 'root ::= "<" ("yes" | "no") ">"')
    together = run.ask(
        (prompt, DecodingOptions(12, grammar=digits, logprob=True)),
        (prompt, DecodingOptions(12, grammar=ends, temperature=1.5, seed=3)),
        (prompt, DecodingOptions(12)),
    )
    alone = run.one(prompt)
    with torch.no_grad():
        logits = run.backend._model.model(torch.tensor([prompt])).logits[0, -1]
    own = torch.log_softmax(logits.float(), -1)[together[0].ids[0]]
    return {
        "texts": [run.text(answer) for answer in together[:2]],
        "ends": [answer.finish for answer in together[:2]],
        "free like alone": together[2].ids == alone.ids,
        "log probability": [together[0].logprobs[0], float(own)],
        "as many log probabilities as tokens": len(together[0].logprobs) == len(together[0].ids),
        "cut": [run.text(cut := run.one(prompt, grammar=digits, max_tokens=2)), cut.finish],
        "not a grammar": refusal(lambda: run.one(prompt, grammar=OutputGrammar("ebnf", "root ::= ("))),
        "after that": len(run.one(prompt).ids),
        "details": run.loaded.details["grammars"],
    }


def sampling(directory: Path) -> dict[str, Any]:
    run = Run(directory)
    prompt = run.prompt(40)
    question = run.backend.encode("?")[0]
    greedy, hot = run.one(prompt).ids, {"temperature": 5.0}
    return {
        "same seed": run.one(prompt, seed=5, **hot).ids == run.one(prompt, seed=5, **hot).ids,
        "other seed": run.one(prompt, seed=5, **hot).ids == run.one(prompt, seed=6, **hot).ids,
        "no seed": run.one(prompt, **hot).ids == run.one(prompt, **hot).ids,
        "hot is greedy": run.one(prompt, seed=5, **hot).ids == greedy,
        "top_k is greedy": run.one(prompt, top_k=1, **hot).ids == greedy,
        "top_p is greedy": run.one(prompt, top_p=1e-6, **hot).ids == greedy,
        "min_p is greedy": run.one(prompt, min_p=1.0, **hot).ids == greedy,
        "repeats": _repeats(run.one(prompt, max_tokens=60).ids),
        "repeats when that costs": _repeats(run.one(prompt, max_tokens=60, repetition_penalty=1e6).ids),
        "biased": [
            run.one(prompt, max_tokens=1, logit_bias=((question, 100.0),)).ids == [question],
            run.one(prompt, max_tokens=1, logit_bias=((greedy[0], -100.0),)).ids != greedy[:1],
        ],
        "seed in company": [answer.ids == run.one(prompt, seed=5, **hot).ids for answer in _company(run, prompt)],
    }


def _repeats(ids: Sequence[int]) -> int:
    return len(ids) - len(set(ids))


def _company(run: Run, prompt: Sequence[int]) -> list[Answer]:
    own = DecodingOptions(12, temperature=5.0, seed=5)
    return run.ask((prompt, own), (run.prompt(70, "x"), DecodingOptions(12, temperature=1.0, seed=8)))[:1]


def reuse(directory: Path) -> dict[str, Any]:
    run = Run(directory)
    prompt = run.prompt(200)
    first = run.one(prompt)
    following = [*prompt, *first.ids, *run.backend.encode("And?")]
    second = run.one(following)
    edited = [*prompt[:100], *run.backend.encode("EDIT"), *prompt[104:]]
    fork = run.one(edited)
    asked = run.prompt(150, "one token ")
    run.one(asked, max_tokens=1)
    cold = Run(directory, prefixes=False)
    cold.one(prompt)
    return {
        "first": first.reused,
        "second": [second.reused, len(prompt) + len(first.ids)],
        "fork": [fork.reused, 100],
        "after one token": [run.one(asked).reused, len(asked)],
        "without prefixes": [cold.one(prompt).reused, cold.loaded.blocks],
        "same answers": cold.one(following).ids == second.ids and cold.one(edited).ids == fork.ids,
        "loaded": [run.loaded.block, run.loaded.blocks, run.loaded.architecture],
    }


def limits(directory: Path) -> dict[str, Any]:
    run, room = Run(directory, blocks=SMALL), SMALL * BLOCK
    prompt = run.prompt(60)
    alone = run.one(prompt, max_tokens=40).ids
    both = run.ask((run.prompt(room), DecodingOptions(4)), (prompt, DecodingOptions(40)))
    cut = run.one(run.prompt(room - 5), max_tokens=100, grammar=OutputGrammar("regex", "[a-z]{90}"))
    crowd = run.ask(*[(run.prompt(60, letter), DecodingOptions(40)) for letter in "abcdef"])
    apart = [run.one(run.prompt(60, letter), max_tokens=40).ids for letter in "abcdef"]
    return {
        "too long": both[0].finish,
        "beside it": both[1].ids == alone,
        "cut at the end of the cache": [len(cut.ids), cut.finish],
        "more than fit at once": [one.ids == ids for one, ids in zip(crowd, apart, strict=True)],
        "used afterwards": run.used(),
    }


def cancels(directory: Path) -> dict[str, Any]:
    run = Run(directory)
    long = DecodingOptions(400, grammar=OutputGrammar("regex", "[a-z]{500}"))
    key = run.backend.submit(run.prompt(300), long)
    while not any(told == key for told, _ in run.backend.step()):
        pass
    held = run.backend.usage()["cache_used"]
    run.backend.cancel(key)
    run.backend.cancel(key)
    freed = run.used()
    drawn = random.Random(7)
    live: list[int] = []
    for number in range(ROUNDS):
        live.append(run.backend.submit(run.prompt(drawn.randrange(20, 200), str(number)), long))
        for _ in range(drawn.randrange(3)):
            run.backend.step()
        if len(live) > 3:
            run.backend.cancel(live.pop(drawn.randrange(len(live))))
    for key in live:
        run.backend.cancel(key)
    left = run.used()
    late = [key for key, _ in run.backend.step()]
    return {
        "held": held,
        "freed": freed,
        "left": [left, run.backend.running(), len(late)],
        "works": len(run.one(run.prompt(40), grammar=OutputGrammar("regex", "[a-z]{5}")).ids),
    }


def eviction(directory: Path) -> dict[str, Any]:
    """Fill the cache with three prefixes of a quarter each, then run a request that needs more than what is left.
    Return which prefixes are still cached.
    """
    run = Run(directory, blocks=32)
    quarter = 8 * BLOCK
    for letter in "abc":
        run.one(run.prompt(quarter, letter), max_tokens=2)
    run.one(run.prompt(2 * quarter, "d"), max_tokens=2)
    kept = run.one(run.prompt(quarter, "c"), max_tokens=2).reused
    return {"latest": kept, "oldest": run.one(run.prompt(quarter, "a"), max_tokens=2).reused, "of": quarter}


def changed(directory: Path) -> dict[str, Any]:
    """Simulate a library that no longer asks its logits processors for their arguments. Return how the
    backend behaves.
    """

    def prepare_tensor_args(self: Any, requests_in_batch: Any, arg_storage: Any) -> Any:
        return arg_storage

    cb_logits_processors.ContinuousBatchingLogitsProcessorList.prepare_tensor_args = prepare_tensor_args
    run = Run(directory)
    prompt = run.prompt(40)
    free = run.one(prompt, logprob=True)
    return {
        "free": [len(free.ids), len(free.logprobs)],
        "grammar": refusal(lambda: run.one(prompt, grammar=OutputGrammar("regex", "[0-9]"))),
        "sampled": refusal(lambda: run.one(prompt, temperature=1.0)),
        "details": run.loaded.details["grammars"],
    }


def unbatchable(directory: Path) -> dict[str, Any]:
    kinds = ("sliding", "recurrent", "llava")
    return {kind: refusal(lambda kind=kind: Run(directory, kind)) for kind in kinds}  # type: ignore[misc]


def options(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ways: dict[str, dict[str, Any]] = {
        "nf4": {"precision": "nf4"},
        "int8": {"precision": "int8"},
        "bf16": {"precision": "bf16"},
        "probed": {"precision": ""},
        "spread": {"device": "auto", "max_memory": {"cpu": 10**9}},
    }
    for name, given in ways.items():
        run = Run(directory, "wide", **given)
        answer = run.one(run.prompt(40), grammar=OutputGrammar("regex", "[a-z]{3}"))
        found[name] = [run.text(answer), run.loaded.details["precision"], run.loaded.details["device"]]
        found[name].append(run.backend._model.model.get_memory_footprint())
    found["too little"] = refusal(lambda: Run(directory, device="auto", max_memory={"cpu": 1000}))
    found["no such device"] = refusal(lambda: Run(directory, device="cuda:7"))
    found["no such precision"] = refusal(lambda: Run(directory, precision="int3"))
    return found


def broken(directory: Path) -> dict[str, Any]:
    Run(directory)
    good = directory / "llama"

    def spoiled(name: str, spoil: Callable[[Path], Any]) -> list[str]:
        copy = Path(shutil.copytree(good, directory / name))
        spoil(copy)
        return refusal(lambda: Run(directory, name))

    def config(path: Path, **facts: Any) -> None:
        file = path / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | facts))

    def without_a_tensor(path: Path) -> None:
        tensors = load_file(path / WEIGHTS)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})

    def pickled(path: Path) -> None:
        (path / WEIGHTS).unlink()
        torch.save({}, path / "pytorch_model.bin")

    whole = (good / WEIGHTS).read_bytes()
    return {
        "cut off": spoiled("cut", lambda path: (path / WEIGHTS).write_bytes(whole[: len(whole) // 2])),
        "no model": spoiled("noise", lambda path: (path / WEIGHTS).write_bytes(b"x" * 100)),
        "a tensor is missing": spoiled("holes", without_a_tensor),
        "pickled": spoiled("pickled", pickled),
        "its own code": spoiled("code", lambda path: config(path, model_type="x", auto_map={"AutoConfig": "x.X"})),
        "unknown": spoiled("unknown", lambda path: config(path, model_type="nobody-knows")),
        "no config": spoiled("bare", lambda path: (path / "config.json").unlink()),
        "not there": refusal(lambda: Transformers(directory).load(directory / "no", LoadOptions(), print)),
    }


def converted(directory: Path) -> dict[str, Any]:
    """Convert a GGUF file with the weights of a saved model. Return what the backend reports."""
    words = tiny_models.tokenizer()
    sizes = tiny_models.decoder_sizes(num_key_value_heads=2, tie_word_embeddings=True)
    del sizes["head_dim"]
    config = transformers.Qwen2Config(**sizes, **tiny_models.ids(words))
    torch.manual_seed(7)
    model = transformers.Qwen2ForCausalLM(config)
    tiny_models.save(directory / "qwen2", model, words)
    write_gguf(directory / "qwen2.gguf", model, words)
    stages: list[str] = []

    def load() -> tuple[Transformers, LoadedModel]:
        backend = Transformers(directory)
        given = LoadOptions(precision="fp32", device="cpu", cache_gb=0.01)
        return backend, backend.load(directory / "qwen2.gguf", given, lambda stage, fraction: stages.append(stage))

    backend, told = load()
    once = stages.count(CONVERTING)
    again, _ = load()
    folders = sorted(path.name for path in (directory / "transformers").iterdir())
    ids = backend.encode(TEXT)
    with torch.no_grad():
        whole = model.to(torch.bfloat16).float()(torch.tensor([ids])).logits
        far = float((again._model.model(torch.tensor([ids])).logits - whole).abs().max() / whole.abs().max())
    (directory / "cut.gguf").write_bytes((directory / "qwen2.gguf").read_bytes()[:-64])
    return {
        "conversions": [once, stages.count(CONVERTING)],
        "folders": [len(folders), all("-" not in name for name in folders)],
        "far": far,
        "tied": again._model.model.config.tie_word_embeddings,
        "told": [
            told.context_length == tiny_models.CONTEXT,
            told.architecture,
            bool(told.template),
            backend.decode(ids) == TEXT,
        ],
        "end": sorted(backend._model.end_ids) == [words.eos_token_id],
        "cut off": refusal(
            lambda: Transformers(directory).load(directory / "cut.gguf", LoadOptions(), lambda *_: None)
        ),
    }


def write_gguf(path: Path, model: Any, words: Any) -> None:
    """Write a GGUF file as converters do: the output head is stored beside the embedding that it is tied to."""
    config, vocabulary = model.config, words.get_vocab()
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens[vocabulary[tiny_models.EOI]] = "zz"  # there is no such file without a merge
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tiny_models.SPECIAL else 1 for token in tokens])
    writer.add_token_merges(["z z"])
    writer.add_eos_token_id(words.eos_token_id)
    writer.add_chat_template(words.chat_template)
    named = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        writer.add_tensor(named.get_name(name, (".weight", ".bias")), weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


PARTS: Mapping[str, Callable[[Path], dict[str, Any]]] = MappingProxyType(
    {part.__name__: part for part in (grammars, sampling, reuse, limits, cancels, eviction)}
    | {part.__name__: part for part in (changed, unbatchable, options, broken, converted)}
)


def main() -> None:
    code = 1
    try:
        print(json.dumps({name: PARTS[name](Path(sys.argv[1])) for name in sys.argv[2:]}), flush=True)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)  # the managers' threads are not daemons


if __name__ == "__main__":
    main()
