"""Tests the processes that read pages: their number, their time limit, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from agent_kernel.core.errors import FetchFailed
from agent_kernel.core.net.fetch import FetchResult
from agent_kernel.tools.web import article_reader
from agent_kernel.tools.web.article_reader import ArticleReader
from tests.waiting import until


@pytest.fixture
async def reader() -> AsyncIterator[ArticleReader]:
    made = ArticleReader()
    yield made
    await made.aclose()


def page(text: str) -> FetchResult:
    return FetchResult("https://birds.example/", "text/html", "", text.encode())


async def test_no_more_processes_than_places_read_at_once_and_they_are_used_again(
    reader: ArticleReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[article_reader.ArticleProcess] = []
    start = article_reader.ArticleProcess.start

    async def counted() -> article_reader.ArticleProcess:
        begun.append(await start())
        return begun[-1]

    monkeypatch.setattr(article_reader.ArticleProcess, "start", counted)
    found = await asyncio.gather(*(reader.read(page(f"<p>page {n}</p>")) for n in range(8)))
    assert [one.text for one in found] == [f"page {n}" for n in range(8)]
    assert len(begun) == article_reader.AT_ONCE


async def test_a_page_that_takes_too_long_ends_its_process_and_the_next_is_read(
    reader: ArticleReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reader.read(page("<p>warm</p>"))
    os.kill(reader._idle[0]._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(article_reader, "READ_S", 0.05)
    with pytest.raises(FetchFailed, match="within"):
        await reader.read(page("<p>late</p>"))
    monkeypatch.setattr(article_reader, "READ_S", 20.0)
    assert (await reader.read(page("<p>next</p>"))).text == "next"


async def test_a_page_that_kills_its_reader_is_an_error_and_the_next_is_read(reader: ArticleReader) -> None:
    await reader.read(page("<p>warm</p>"))
    [worker] = reader._idle
    worker._process.kill()
    with pytest.raises(FetchFailed, match="the program that reads pages hit a limit"):
        await reader.read(page("<p>gone</p>"))
    assert (await reader.read(page("<p>next</p>"))).text == "next"


async def test_a_cancelled_reading_leaves_no_process(reader: ArticleReader) -> None:
    reading = asyncio.create_task(reader.read(page("<p>x</p>" * 1_000)))
    await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.wait([reading])
    assert reader._idle == []


async def test_idle_processes_go(reader: ArticleReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(article_reader, "IDLE_S", 0.01)
    await reader.read(page("<p>once</p>"))
    workers = list(reader._idle)
    async with asyncio.timeout(30):
        await until(lambda: not reader._idle)
        assert [await worker._process.wait() for worker in workers] in ([], [0])


async def test_without_the_library_the_reason_is_told(reader: ArticleReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(article_reader, "KEPT", ())
    monkeypatch.setattr(sys, "executable", sys._base_executable)  # type: ignore[attr-defined]
    with pytest.raises(FetchFailed, match="trafilatura is missing"):
        await reader.read(page("<p>x</p>"))
