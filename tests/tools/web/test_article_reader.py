from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agent_kernel.core.errors import FetchFailed
from agent_kernel.core.net.fetch import FetchResult
from agent_kernel.tools.web.article_reader import ArticleReader, ArticleText
from tests.tools.files.documents import pdf

pytestmark = pytest.mark.asyncio(loop_scope="module")
ARTICLE = """<!doctype html><html><head><title> House
 sparrow </title><script>evil()</script></head><body>
<nav><a href="/">Home</a> <a href="/login">Log in</a></nav>
<article><h1>House sparrow</h1><p>The house sparrow is a bird of the sparrow family, found in most parts of the world.
It is strongly associated with human habitation, and lives in cities as well as on farms.</p>
<table><tr><th>Length</th><th>Mass</th></tr><tr><td>16 cm</td><td>39 g</td></tr></table>
<p>It feeds mostly on the seeds of grains and weeds, but it is an opportunistic eater as well.</p></article>
<footer>Cookies and imprint</footer></body></html>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[ArticleReader]:
    made = ArticleReader()
    yield made
    await made.aclose()


def page(text: str | bytes, mime: str = "text/html", charset: str = "") -> FetchResult:
    return FetchResult("https://birds.example/sparrow", mime, charset, text.encode() if isinstance(text, str) else text)


async def test_a_page_is_its_title_and_its_article(reader: ArticleReader) -> None:
    found = await reader.read(page(ARTICLE))
    assert (found.url, found.title) == ("https://birds.example/sparrow", "House sparrow")
    assert "most parts of the world" in found.text
    assert "| 16 cm | 39 g |" in found.text
    assert "evil" not in found.text
    assert "Cookies" not in found.text


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        ("<meta charset=latin-1><p>größer als das Übrige</p>".encode("latin-1"), ""),
        ("<p>größer als das Übrige</p>".encode("latin-1"), "iso-8859-1"),
        ("<p>größer als das Übrige</p>".encode(), "utf-8"),
    ],
)
async def test_the_charset_is_the_servers_or_the_pages_own(reader: ArticleReader, data: bytes, charset: str) -> None:
    assert "größer als das Übrige" in (await reader.read(page(data, charset=charset))).text


async def test_what_is_no_html_is_read_as_it_is(reader: ArticleReader) -> None:
    assert (await reader.read(page(" a < b \n", "text/plain"))).text == "a < b"
    assert (await reader.read(page('{"a":[1,2]}', "application/json"))).text == '{\n "a": [\n  1,\n  2\n ]\n}'
    assert (await reader.read(page("{broken", "application/json"))).text == "{broken"


@pytest.mark.parametrize(
    "text",
    ["", "<", "\x00" * 50, "<html><body></body></html>", "<" * 1_000, "[" * 100_000],
    ids=["nothing", "a bracket", "zeros", "empty", "brackets", "depth"],
)
async def test_a_page_without_text_has_none(reader: ArticleReader, text: str) -> None:
    for mime in ("text/html", "application/json"):
        assert isinstance(await reader.read(page(text, mime)), ArticleText)


async def test_of_a_page_with_very_many_tags_the_words_are_taken(reader: ArticleReader) -> None:
    found = await reader.read(page(ARTICLE + "<b></b>" * 30_000))
    assert "most parts of the world" in found.text
    assert "Home Log in" in found.text


async def test_a_paper_as_pdf_is_read_page_by_page(reader: ArticleReader) -> None:
    paper = FetchResult("https://birds.example/paper.pdf", "application/pdf", "", pdf("Of sparrows.", "Their weight."))
    found = await reader.read(paper)
    assert found.text.startswith("[page 1 of 2]\nOf sparrows.")
    assert "Their weight." in found.text
    with pytest.raises(FetchFailed, match="cannot be read"):
        await reader.read(page("%PDF-1.4 broken", "application/pdf"))
