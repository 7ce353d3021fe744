"""Tests fetching the URLs of one request within one limit."""

from __future__ import annotations

import pytest

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import FetchFailed
from agent_kernel.core.net.fetch import Fetcher, FetchLimits
from agent_kernel.core.net.guard import Guard
from jupyter_ext.api.dialects.handler import fetch_all
from tests.core.net.web import Web, says, served

SIZE = 1 << 20
PATHS = tuple(f"/{number}" for number in range(8))


def fetcher(web: Web) -> Fetcher:
    return Fetcher(Guard(web.host), EgressPolicy())


async def test_all_are_fetched_in_their_order() -> None:
    async with served({path: says(200, path.encode()) for path in PATHS}) as web:
        found = await fetch_all(fetcher(web), [web.url(path) for path in PATHS], FetchLimits(), purpose="a test")
    assert [one.data.decode() for one in found] == list(PATHS)


async def test_the_bound_is_that_of_all_together() -> None:
    async with served({path: says(200, b"x" * SIZE) for path in PATHS}) as web:
        urls = [web.url(path) for path in PATHS]
        assert len(await fetch_all(fetcher(web), urls[:2], FetchLimits(bytes=2 * SIZE), purpose="a test")) == 2
        with pytest.raises(FetchFailed, match="at most 2 MiB together"):
            await fetch_all(fetcher(web), urls, FetchLimits(bytes=2 * SIZE), purpose="a test")


async def test_one_that_can_not_be_had_ends_the_others() -> None:
    async with served({"/": says(200, b"x")}) as web:
        with pytest.raises(FetchFailed):
            await fetch_all(fetcher(web), [web.url(), web.url("/none")], FetchLimits(), purpose="a test")
