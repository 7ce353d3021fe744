import asyncio
import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trustme

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import FetchFailed, Forbidden, InvalidRequest, LocalOnly
from agent_kernel.core.net import fetch
from agent_kernel.core.net.fetch import FILE, Fetcher, FetchLimits
from agent_kernel.core.net.guard import Guard
from tests.core.net.web import Answer, Web, drips, floods, moved, says, says_nothing, served
from tests.waiting import until


def fetcher(web: Web, *more: str) -> Fetcher:
    return Fetcher(Guard(",".join([web.host, *more])), EgressPolicy())


async def test_a_page_is_fetched_with_its_type_and_text() -> None:
    page = says(200, "grün".encode("latin-1"), content_type="Text/HTML; charset=ISO-8859-1")
    async with served({"/": page}) as web:
        fetched = await fetcher(web).get(web.url())
    assert (fetched.mime, fetched.text, fetched.url) == ("text/html", "grün", web.url())


async def test_nothing_of_this_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    pages = {"/": says(200, b"x", set_cookie="a=b"), "/again": says(200, b"y")}
    async with served(pages) as web:
        one = fetcher(web)
        await one.get(web.url())
        await one.get(web.url("/again"))
    names = {name for asked in web.asked for name in asked.headers}
    assert names == {"host", "accept", "accept-encoding", "accept-language", "connection", "user-agent"}


async def test_a_redirect_is_followed_and_told() -> None:
    async with served({"/": moved("/b?x=1#part"), "/b": says(200, b"here")}) as web:
        fetched = await fetcher(web).get(web.url())
    assert (fetched.url, fetched.data) == (web.url("/b?x=1"), b"here")


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://2130706433/",
        "//127.0.0.1:22/",
        "file:///etc/passwd",
        "http://user:secret@example.org/",
    ],
)
async def test_a_redirect_to_where_nothing_may_be_fetched_is_refused(location: str) -> None:
    async with served({"/": moved(location)}) as web:
        with pytest.raises((Forbidden, InvalidRequest)):
            await fetcher(web).get(web.url())


async def test_redirects_in_a_circle_end() -> None:
    async with served({"/": moved("/")}) as web:
        with pytest.raises(FetchFailed, match="more than 5 times"):
            await fetcher(web).get(web.url())
    assert len(web.asked) == 6


class Rebinding:
    """A name server that returns one address to the guard and another to the next caller."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]


async def test_a_name_that_changes_its_address_is_connected_to_the_one_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served({"/": says(200, b"checked")}) as web:
        resolver = Rebinding("127.0.0.1", "127.0.0.2")
        guard = Guard(f"127.0.0.1:{web.port}", resolve=resolver)
        real = socket.getaddrinfo

        def asked(host: object, *rest: object, **more: object) -> object:
            assert host in ("127.0.0.1", b"127.0.0.1"), f"{host!r} was looked up after the check"
            return real(host, *rest, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", asked)
        fetched = await Fetcher(guard, EgressPolicy()).get(f"http://rebind.example:{web.port}/")
        assert (fetched.data, resolver.answers) == (b"checked", ["127.0.0.2"])
        assert web.asked[0].headers["host"] == f"rebind.example:{web.port}"
        with pytest.raises(Forbidden):
            await Fetcher(guard, EgressPolicy()).get(f"http://rebind.example:{web.port}/")


async def test_a_redirect_to_the_same_name_is_resolved_and_checked_again() -> None:
    async with served({"/": moved("/b"), "/b": says(200, b"b")}) as web:
        guard = Guard(f"127.0.0.1:{web.port}", resolve=Rebinding("127.0.0.1", "10.0.0.9"))
        with pytest.raises(Forbidden, match=r"10\.0\.0\.9"):
            await Fetcher(guard, EgressPolicy()).get(f"http://rebind.example:{web.port}/")
    assert [asked.path for asked in web.asked] == ["/"]


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.3", "127.0.0.1"]

    async with served({"/": says(200, b"second")}) as web:
        guard = Guard("two.example", resolve=resolve)
        assert (await Fetcher(guard, EgressPolicy()).get(f"http://two.example:{web.port}/")).data == b"second"


async def test_the_certificate_has_to_be_the_names_though_the_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("right.example").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(fetch, "_load_certificates", lambda: trusting)
    async with served({"/": says(200, b"safe")}, tls) as web:
        one = Fetcher(Guard("*.example", resolve=resolve), EgressPolicy())
        assert (await one.get(f"https://right.example:{web.port}/")).data == b"safe"
        with pytest.raises(FetchFailed, match=r"wrong\.example"):
            await one.get(f"https://wrong.example:{web.port}/")
        with pytest.raises(FetchFailed, match="certificate"):
            await Fetcher(Guard(web.host), EgressPolicy()).get(f"https://{web.host}/")


@pytest.mark.parametrize("page", [drips(0.01), says_nothing()], ids=["a drip", "silence"])
async def test_what_takes_too_long_is_given_up(page: Answer) -> None:
    async with served({"/": page}) as web:
        with pytest.raises(FetchFailed, match=r"within 0\.2 s"):
            await fetcher(web).get(web.url(), FetchLimits(total_s=0.2))


@pytest.mark.parametrize(
    "page",
    [
        floods(),
        says(200, b"x" * 70_000),
        says(200, gzip.compress(bytes(8 << 20)), content_encoding="gzip"),
        says(200, zlib.compress(bytes(8 << 20)), content_encoding="deflate"),
        says(200, gzip.compress(bytes(40_000)) * 2, content_encoding="gzip"),
    ],
    ids=["endless", "announced", "gzip bomb", "deflate bomb", "members"],
)
async def test_what_is_too_large_is_not_read_on(page: Answer) -> None:
    async with served({"/": page}) as web:
        with pytest.raises(FetchFailed, match="the rest was not read"):
            await fetcher(web).get(web.url(), FetchLimits(bytes=65_536))


async def test_a_bomb_is_unpacked_no_further_than_it_may_be() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    sizes: list[int] = []
    async with (
        served({"/": says(200, bomb, content_encoding="gzip")}) as web,
        fetcher(web).open(web.url(), FetchLimits(bytes=1 << 20)) as (_, pieces),
    ):
        with pytest.raises(FetchFailed):
            await _read(pieces, sizes)
    assert sum(sizes) <= 1 << 20
    assert max(sizes) <= 64 << 10


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"packed", mtime=0)),
        ("x-gzip", gzip.compress(b"pack", mtime=0) + gzip.compress(b"ed", mtime=0)),
        ("deflate", zlib.compress(b"packed")),
        ("deflate", zlib.compress(b"packed")[2:-4]),
        ("identity", b"packed"),
    ],
)
async def test_a_packed_answer_is_unpacked(encoding: str, body: bytes) -> None:
    async with served({"/": says(200, body, content_encoding=encoding)}) as web:
        assert (await fetcher(web).get(web.url())).data == b"packed"


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip, br", b"x"), ("gzip", b"no gzip at all")])
async def test_an_answer_that_is_packed_in_another_way_is_said_to_be(encoding: str, body: bytes) -> None:
    async with served({"/": says(200, body, content_encoding=encoding)}) as web:
        with pytest.raises(FetchFailed, match=r"encoding|compressed"):
            await fetcher(web).get(web.url())


async def test_an_answer_that_ends_early_is_no_page() -> None:
    async with served({"/": says(200, b"half", content_length="100")}) as web:
        with pytest.raises(FetchFailed, match="ended early"):
            await fetcher(web).get(web.url())


@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 429, 500, 503])
async def test_an_answer_that_is_no_page_names_its_status(status: int) -> None:
    async with served({"/": says(status)}) as web:
        if status == 204:
            assert (await fetcher(web).get(web.url())).data == b""
            return
        with pytest.raises(FetchFailed, match=f"HTTP {status}"):
            await fetcher(web).get(web.url())


async def test_a_type_that_is_not_read_is_not_loaded() -> None:
    async with served({"/": says(200, b"MZ", content_type="application/x-msdownload")}) as web:
        with pytest.raises(FetchFailed, match="application/x-msdownload"):
            await fetcher(web).get(web.url(), FetchLimits(types=("text/", "application/json")))


async def test_a_server_that_is_not_there_is_said_to_be() -> None:
    async with served({}) as web:
        pass
    with pytest.raises(FetchFailed, match="cannot be reached"):
        await fetcher(web).get(web.url())


async def test_a_server_that_speaks_something_else_is_said_to() -> None:
    async def ssh(asked: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    async with served({"/": ssh}) as web:
        with pytest.raises(FetchFailed, match="does not answer"):
            await fetcher(web).get(web.url())


async def test_local_only_fetches_nothing_from_elsewhere_and_a_redirect_is_no_way_around() -> None:
    async with served({"/": moved("https://example.org/secret"), "/b": says(200, b"b")}) as web:
        one = Fetcher(Guard(web.host), EgressPolicy(local_only=True))
        assert (await one.get(web.url("/b"))).data == b"b"
        for url in ("https://example.org/", web.url()):
            with pytest.raises(LocalOnly):
                await one.get(url)


async def test_a_reader_that_stops_early_leaves_nothing_open() -> None:
    async with served({"/": floods()}) as web:
        async with fetcher(web).open(web.url(), FILE) as (_, pieces):
            assert await anext(pieces)
        await asyncio.sleep(0)


def count_resources() -> tuple[int, int]:
    return len(list(Path("/dev/fd").iterdir())), threading.active_count()


async def test_many_fetches_leave_no_descriptor_and_no_thread() -> None:
    pages = {"/": says(200, b"x"), "/big": says(200, b"x" * 90_000), "/on": moved("/"), "/gone": says(404)}
    async with served(pages) as web:
        one = fetcher(web)
        await one.get(web.url())
        before = count_resources()
        for _ in range(25):
            await one.get(web.url("/on"))
            for path in ("/big", "/gone"):
                with pytest.raises(FetchFailed):
                    await one.get(web.url(path), FetchLimits(bytes=1_000))
        await until(lambda: not any(now > then for now, then in zip(count_resources(), before, strict=True)), 20)


async def _read(pieces: AsyncIterator[bytes], sizes: list[int]) -> None:
    async for piece in pieces:
        sizes.append(len(piece))
