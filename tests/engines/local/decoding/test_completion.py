"""Sampling, stop strings and log probabilities of one request, on a very small model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
import pytest_asyncio

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import DecodingOptions, LoadOptions, StepOutput
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.decoding.completion import Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.openvino.backend import BLOCK, MAX_BATCHED, OpenVino

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model("tiny")]
CACHE = Settings.from_env().cache_dir
GREEDY = DecodingOptions(24)
HOT = DecodingOptions(1, temperature=2.0)
SEEDS = range(40)


class CountedSteps(OpenVino):
    """Counts the steps, each of which computes at most MAX_BATCHED tokens of prompts."""

    steps = 0

    def step(self) -> list[tuple[int, StepOutput]]:
        self.steps += 1
        return super().step()


@pytest.fixture(scope="module")
def backend() -> CountedSteps:
    return CountedSteps(CACHE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def completer(backend: CountedSteps) -> AsyncGenerator[Completer, None]:
    broken = list[BaseException]()
    decoder = Decoder(backend, broken.append)
    path = catalog.resolve("tiny", CACHE).path
    loaded = await decoder.call(lambda: backend.load(path, LoadOptions(cache_gb=1), lambda stage, fraction: None))
    yield Completer(decoder, backend, loaded, 8192)
    assert not broken


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prompt(completer: Completer) -> str:
    rendered = await completer.render([{"role": "user", "content": "Tell a long story about a fox."}])
    await complete(completer, rendered, GREEDY)  # what follows finds the same prefix in the cache
    return rendered


async def complete(
    completer: Completer, prompt: str, decoding: DecodingOptions, stop: tuple[str, ...] = ()
) -> tuple[DecodedCompletion, list[TextChunk]]:
    completion = DecodedCompletion(prompt)
    chunks = [chunk async for chunk in completer.stream(completion, decoding, stop=stop)]
    return completion, chunks


async def draw_first_tokens(completer: Completer, prompt: str, decoding: DecodingOptions) -> list[str]:
    """Return the first tokens for many seeds, decoded in one batch."""
    runs = await asyncio.gather(*(complete(completer, prompt, replace(decoding, seed=seed)) for seed in SEEDS))
    return [completion.text for completion, _ in runs]


async def test_a_hot_model_says_many_things(completer: Completer, prompt: str) -> None:
    assert len(set(await draw_first_tokens(completer, prompt, HOT))) > 20


@pytest.mark.parametrize(
    "narrowest", [replace(HOT, top_k=1), replace(HOT, top_p=0.001), replace(HOT, min_p=0.999)], ids=["k", "p", "min_p"]
)
async def test_the_narrowest_sampling_is_greedy(completer: Completer, prompt: str, narrowest: DecodingOptions) -> None:
    best, _ = await complete(completer, prompt, DecodingOptions(1))

    assert set(await draw_first_tokens(completer, prompt, narrowest)) == {best.text}


@pytest.mark.parametrize(
    ("narrow", "most"),
    [
        (replace(HOT, top_k=4), 4),
        (replace(HOT, top_p=0.2), 19),
        (replace(HOT, min_p=0.3), 19),
        (replace(HOT, temperature=0.7), 19),
    ],
    ids=["top_k", "top_p", "min_p", "temperature"],
)
async def test_narrower_sampling_says_fewer_things(
    completer: Completer, prompt: str, narrow: DecodingOptions, most: int
) -> None:
    assert 1 < len(set(await draw_first_tokens(completer, prompt, narrow))) <= most


async def test_requests_of_one_batch_are_sampled_each_by_its_own_settings(completer: Completer, prompt: str) -> None:
    alone, _ = await complete(completer, prompt, GREEDY)
    hot = replace(GREEDY, temperature=1.5, seed=3)
    (greedy, _), (sampled, _), (again, _), (other, _) = await asyncio.gather(
        *(complete(completer, prompt, one) for one in (GREEDY, hot, hot, replace(hot, seed=4)))
    )

    assert sampled.ids == again.ids != other.ids
    assert greedy.ids != sampled.ids
    # Batches of other sizes compute in another order: greedy texts agree for some tokens at least.
    assert greedy.ids[:4] == alone.ids[:4]


async def test_without_a_seed_answers_differ(completer: Completer, prompt: str) -> None:
    hot = replace(GREEDY, temperature=1.5)
    (first, _), (second, _) = await asyncio.gather(*(complete(completer, prompt, hot) for _ in range(2)))

    assert first.ids != second.ids


async def test_a_repetition_penalty_is_kept_to(completer: Completer) -> None:
    prompt = "one two one two one two one two one two one"
    free, _ = await complete(completer, prompt, DecodingOptions(16))
    bound, _ = await complete(completer, prompt, DecodingOptions(16, repetition_penalty=2.0))

    assert len(set(bound.ids)) > len(set(free.ids))


async def test_each_token_has_its_log_probability_and_the_text_it_added(completer: Completer, prompt: str) -> None:
    completion, chunks = await complete(completer, prompt, replace(GREEDY, logprob=True))
    told = [token for chunk in chunks for token in chunk.logprobs]

    assert len(told) == len(completion.ids) == completion.usage.completion_tokens
    assert "".join(token.text for token in told) == completion.text
    assert [token.logprob for token in told] == completion.logprobs
    assert all(token.logprob <= 0 for token in told)
    # The sum is that of the same tokens asked one by one, each after those before it.
    asked = prompt
    for token in told[:5]:
        alone = await completer.first_token(asked)
        assert alone.logprobs[0] == pytest.approx(token.logprob, abs=0.35)
        asked += token.text


async def test_bytes_of_a_character_are_told_as_that_character(completer: Completer) -> None:
    prompt = "Repeat exactly: 🦊🦉🐢🦊🦉🐢🦊🦉🐢🦊🦉🐢\n🦊🦉🐢🦊🦉🐢🦊🦉🐢"
    completion, chunks = await complete(completer, prompt, replace(GREEDY, logprob=True))
    told = [token for chunk in chunks for token in chunk.logprobs]

    assert "".join(token.text for token in told) == completion.text
    assert not any("\ufffd" in token.text for token in told[:-1])
    assert len(completion.text) < len(told)  # one character, several tokens


async def test_without_asking_there_are_no_log_probabilities(completer: Completer, prompt: str) -> None:
    _, chunks = await complete(completer, prompt, GREEDY)

    assert not any(chunk.logprobs for chunk in chunks)


async def test_nothing_of_a_stop_string_leaks_wherever_it_begins(completer: Completer, prompt: str) -> None:
    whole, _ = await complete(completer, prompt, replace(GREEDY, max_tokens=40))
    for start in range(8, 24, 3):
        stop = whole.text[start : start + 9]
        completion, chunks = await complete(completer, prompt, replace(GREEDY, max_tokens=40, logprob=True), (stop,))
        told = "".join(token.text for chunk in chunks for token in chunk.logprobs)

        assert completion.text == "".join(chunk.text for chunk in chunks) == whole.text[: whole.text.index(stop)]
        assert (completion.finish, completion.stopped) == ("stop", stop)
        assert completion.text.startswith(told)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=-0.1),
        Sampling(temperature=float("nan")),
        Sampling(top_p=1.1),
        Sampling(min_p=-1),
        Sampling(top_k=-1),
        Sampling(repetition_penalty=-2.0),
        Sampling(max_tokens=0),
    ],
    ids=str,
)
async def test_a_value_that_means_nothing_is_refused(sampling: Sampling) -> None:
    with pytest.raises(InvalidRequest, match="must be between"):
        decoding_options(sampling)


async def test_the_ends_of_each_range_are_taken(completer: Completer, prompt: str) -> None:
    for sampling in (Sampling(temperature=1, top_p=0), Sampling(temperature=1, min_p=1), Sampling(temperature=100)):
        completion, _ = await complete(completer, prompt, replace(decoding_options(sampling), max_tokens=2))

        assert completion.ids


async def test_requests_with_one_prompt_that_arrive_together_compute_it_once(
    completer: Completer, backend: CountedSteps
) -> None:
    text = " ".join(f"Fox number {at} ran." for at in range(120))

    before = backend.steps
    runs = await asyncio.gather(*(complete(completer, text, replace(HOT, max_tokens=8, seed=at)) for at in range(4)))

    tokens = runs[0][0].usage.prompt_tokens
    assert tokens > 6 * MAX_BATCHED
    assert backend.steps - before < 1.5 * tokens / MAX_BATCHED + 2 * 8
    reused = sorted(completion.usage.reused_tokens for completion, _ in runs)
    assert (reused[0], reused[1]) == (0, tokens - tokens % BLOCK)


async def test_if_the_first_request_is_cancelled_another_computes_the_prompt(
    completer: Completer, backend: CountedSteps
) -> None:
    text = " ".join(f"Cat number {at} slept." for at in range(120))
    first, *others = (asyncio.create_task(complete(completer, text, replace(HOT, seed=at))) for at in range(3))
    before = backend.steps
    while backend.steps < before + 2:
        await asyncio.sleep(0)

    first.cancel()

    assert all(completion.finish == "length" for completion, _ in await asyncio.gather(*others))
