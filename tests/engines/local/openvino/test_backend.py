"""Tests openvino-genai with a very small model in this process: what it reuses from its cache, a full cache, and
grammars that do not compile.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from agent_kernel.core.errors import ContextOverflow, EngineError, InvalidRequest
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import DecodingOptions, LoadedModel, LoadOptions, OutputGrammar, StepOutput
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.decoding.completion import Completer, DecodedCompletion
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.decoding.known_prefixes import CachedBlocks
from agent_kernel.engines.local.grammar import compile_check
from agent_kernel.engines.local.openvino.backend import BLOCK, PIECE, TOKENIZED_AT_ONCE, OpenVino, split_text
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model("tiny")]
CACHE = Settings.from_env().cache_dir
BLOCKS = 24


class Small:
    """The model with a cache of BLOCKS blocks that prefills one block per step, so that steps can be counted."""

    def __init__(self) -> None:
        self.backend = OpenVino(CACHE, blocks=BLOCKS, batched=BLOCK)
        self.broken: list[BaseException] = []

    async def load(self) -> Small:
        self.decoder = Decoder(self.backend, self.broken.append)
        model = catalog.resolve("tiny", CACHE)
        self.loaded: LoadedModel = await self.decoder.call(
            lambda: self.backend.load(model.path, LoadOptions(), lambda stage, fraction: None)
        )
        self.completer = Completer(self.decoder, self.backend, self.loaded, 0)
        return self

    async def completed(self, prompt: str, tokens: int = 8, grammar: OutputGrammar | None = None) -> DecodedCompletion:
        completion = DecodedCompletion(prompt)
        async for _ in self.completer.stream(completion, DecodingOptions(tokens, grammar=grammar)):
            pass
        return completion

    async def used(self) -> float:
        return (await self.completer.usage())["cache_used"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small() -> AsyncGenerator[Small, None]:
    made = await Small().load()
    yield made
    assert not made.broken


def words(seed: int, count: int) -> str:
    """Return a text of ``count`` random words; each is one token or more."""
    chosen = random.Random(seed)
    return " ".join(chosen.choice(("fox", "river", "stone", "wind", "night", "song", "tree")) for _ in range(count))


async def test_the_size_of_the_cache_is_measured_exactly(small: Small) -> None:
    assert (small.loaded.block, small.loaded.blocks) == (BLOCK, BLOCKS)


async def test_what_is_said_to_be_reused_is_what_the_library_reuses(small: Small) -> None:
    """Counted in steps: each computes one block. Every prompt goes on from somewhere in an earlier one."""
    chosen = random.Random(8)
    mirror = CachedBlocks(BLOCK, BLOCKS)
    known: list[list[int]] = [[]]
    early, late = list[int](), list[int]()
    for _ in range(40):
        earlier = chosen.choice(known)
        kept = earlier[: chosen.randrange(len(earlier) + 1)]
        ids = [*kept, *(chosen.randrange(100, 40_000) for _ in range(chosen.randrange(5, 120)))]
        said = mirror.count_reused(ids)
        computed, answer = await small.decoder.call(functools.partial(prefill, small.backend, ids))
        mirror.add(ids + answer[:-1])
        known.append(ids + answer)
        blocks = sum(len(one) // BLOCK + 1 for one in known)
        (early if blocks < BLOCKS else late).append(len(ids) - said - computed)
    # Steps count whole blocks: up to one less a token more than was computed.
    assert early
    assert all(-BLOCK < error <= 0 for error in early), early
    # Once blocks give way, the library does not take the oldest to the letter; and the partly full block may be shared.
    wrong = [error for error in late if not -BLOCK < error <= BLOCK]
    assert len(wrong) <= len(late) / 8, late


def prefill(backend: OpenVino, ids: list[int]) -> tuple[int, list[int]]:
    """Return an upper bound of the prompt tokens that were computed, and the answer."""
    key = backend.submit(ids, DecodingOptions(max_tokens=4))
    steps, answer = 0, list[int]()
    while backend.running():
        pieces = dict(backend.step())
        steps += not answer
        answer += pieces[key].ids if key in pieces else ()
    return steps * BLOCK, answer


async def test_blocks_of_a_cancelled_request_are_free_after_one_step(small: Small) -> None:
    def run() -> tuple[float, float]:
        key = small.backend.submit(list(range(100, 400)), DecodingOptions(max_tokens=50))
        for _ in range(5):
            small.backend.step()
        before = small.backend.usage()["cache_used"]
        small.backend.cancel(key)
        small.backend.step()
        return before, small.backend.usage()["cache_used"]

    before, after = await small.decoder.call(run)

    assert before > 0
    assert after == 0
    assert small.backend.running() == 0


async def test_requests_that_do_not_fit_together_run_one_after_the_other(small: Small) -> None:
    positions: dict[int, list[int]] = {number: [] for number in range(6)}

    async def one(number: int) -> DecodedCompletion:
        completion = DecodedCompletion(words(number, 270))
        completer = small.completer.for_request(f"session {number}", positions[number].append)
        async for _ in completer.stream(completion, DecodingOptions(40)):
            pass
        return completion

    done = await asyncio.gather(*(one(number) for number in range(6)))

    assert all(completion.usage.prompt_tokens * 3 > BLOCKS * BLOCK for completion in done)
    assert all(completion.finish for completion in done)
    assert [told[-1] for told in positions.values() if told] == [1] * 4
    assert await small.used() == 0


async def test_what_can_never_fit_is_refused_with_numbers(small: Small) -> None:
    with pytest.raises(ContextOverflow, match="prompt is too long: ") as raised:
        await small.completed(words(1, 1000))

    assert raised.value.details["cache_tokens"] == BLOCKS * BLOCK
    assert raised.value.details["prompt_tokens"] > BLOCKS * BLOCK


async def test_a_long_text_is_encoded_to_its_end(small: Small) -> None:
    text = "<|im_start|>user\n" + "One word, then (another) 12.5 = x;\n" * 2_000 + "the end<|im_end|>\n"
    ids = small.backend.encode(text)

    assert len(ids) > TOKENIZED_AT_ONCE
    assert small.backend.decode(ids) == text.replace("<|im_start|>", "").replace("<|im_end|>", "")


async def test_the_pieces_of_a_text_have_the_tokens_of_the_whole(small: Small) -> None:
    lines = ["def f(x):", "    return {'a': [x, 1.5e3]}", "", "\tGrüße an   alle, 世界 🙂", "<|im_end|>", "don't  stop"]
    text = "\n".join(lines * 40)
    pieces = list(split_text(text))

    assert len(pieces) > 1
    assert "".join(pieces) == text
    assert [token for piece in pieces for token in small.backend.encode(piece)] == small.backend.encode(text)


async def test_a_text_without_spaces_is_split_anywhere() -> None:
    assert [len(piece) for piece in split_text("🙂" * (PIECE * 2 + 1))] == [PIECE, PIECE, 1]


async def test_an_answer_is_as_long_as_the_cache_has_room(small: Small) -> None:
    completion = DecodedCompletion(words(2, 700))
    tokens = len(small.backend.encode(completion.prompt))
    async for _ in small.completer.stream(completion, DecodingOptions(10_000)):
        pass

    assert completion.finish in ("length", "stop")
    assert tokens + len(completion.ids) <= BLOCKS * BLOCK


@pytest.mark.parametrize(
    "grammar",
    [
        OutputGrammar("regex", "(unclosed"),
        OutputGrammar("ebnf", 'root ::= "a" missing'),
        OutputGrammar("regex", "a" * 70_000),
    ],
    ids=["regex", "ebnf", "huge"],
)
async def test_a_grammar_that_does_not_compile_fails_its_request_alone(small: Small, grammar: OutputGrammar) -> None:
    neighbour = asyncio.create_task(small.completed("Once upon a time", tokens=40))
    await until(lambda: small.decoder.running, 120)

    with pytest.raises(InvalidRequest, match="grammar"):
        await small.completed("Say yes.", grammar=grammar)

    assert len((await neighbour).ids) == 40
    assert (await small.completed("Say yes.", grammar=OutputGrammar("regex", "yes|no"))).text in ("yes", "no")


async def test_a_grammar_that_takes_too_long_is_refused(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_check, "COMPILE_S", -1.0)

    with pytest.raises(InvalidRequest, match="to compile"):
        await small.completed("Say yes.", grammar=OutputGrammar("regex", "yes|no|never"))


async def test_an_empty_prompt_is_an_error_of_its_request(small: Small) -> None:
    with pytest.raises(EngineError, match="empty"):
        await small.completed("")

    assert (await small.completed("Hello")).ids


async def test_a_request_cancelled_while_its_grammar_is_checked_never_runs(small: Small) -> None:
    def run() -> list[tuple[int, StepOutput]]:
        key = small.backend.submit([1, 2, 3], DecodingOptions(4, grammar=OutputGrammar("regex", "[a-m]{1,40}")))
        small.backend.cancel(key)
        return small.backend.step()

    assert await small.decoder.call(run) == []
    assert small.backend.running() == 0
