import asyncio
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import AgentKernelError, FetchFailed, Forbidden, InvalidRequest
from agent_kernel.core.net import guard as guard_module
from agent_kernel.core.net.guard import Guard, normalize_host

PUBLIC = "93.184.215.14"


def resolving(*addresses: str) -> guard_module.Resolver:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


async def test_a_public_name_is_allowed_and_only_its_checked_addresses_are_given() -> None:
    place = await Guard(resolve=resolving(PUBLIC, "2606:4700::1", PUBLIC)).check(
        "HTTPS://Example.ORG./a b".replace(" ", "%20")
    )
    assert place.addresses == (PUBLIC, "2606:4700::1")
    assert (place.url, place.host, place.port) == ("https://example.org/a%20b", "example.org", 443)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.0.0.01/",
        "http://127.0.0.1./",
        "http://0/",
        "http://0.0.0.0/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[0:0:0:0:0:ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[fd00:ec2::254]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://%31%32%37.0.0.1/",
        "http://127.0.0.1%00.example.org/",
        "http://example.org\\@127.0.0.1/",
        "http://user@127.0.0.1/",
        "http://127.0.0.1 .example.org/",
        "http://:80/",
        "http:///etc/passwd",
        "http://[::1/",
        "http://a..b/",
        "http://-a.org/",
        "http://a_b!c/",
        "http://[v1.x]/",
    ],
)
async def test_no_spelling_of_this_machine_is_fetched(url: str) -> None:
    with pytest.raises((Forbidden, InvalidRequest)):
        await Guard(resolve=resolving("127.0.0.1")).check(url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "//example.org/",
        "example.org",
        "javascript:alert(1)",
        "data:text/plain,x",
        "",
        "https://user:password@example.org/",
        "https://user@example.org/",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://example.org/a\r\nHost: other",
        "https://example.org/a b",
        "https://" + "a" * 9_000,
    ],
)
async def test_what_is_no_plain_url_of_the_web_is_the_callers_mistake(url: str) -> None:
    with pytest.raises(InvalidRequest):
        await Guard(resolve=resolving(PUBLIC)).check(url)


@pytest.mark.parametrize("port", [21, 22, 25, 6379, 8080, 8888])
async def test_other_ports_are_refused(port: int) -> None:
    with pytest.raises(Forbidden, match=f"port {port}"):
        await Guard(resolve=resolving(PUBLIC)).check(f"http://example.org:{port}/")


async def test_a_proxy_may_open_every_port() -> None:
    place = await Guard(ports=None, resolve=resolving(PUBLIC)).admit("Example.org", 5432)
    assert place == guard_module.FetchTarget("example.org", 5432, (PUBLIC,))


async def test_a_name_with_one_private_address_is_refused_as_a_whole() -> None:
    with pytest.raises(Forbidden, match="a private address"):
        await Guard(resolve=resolving(PUBLIC, "10.0.0.7")).check("http://example.org/")


async def test_an_own_address_is_refused_though_it_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "is_own_address", lambda address: str(address) == PUBLIC)
    with pytest.raises(Forbidden, match="of this machine"):
        await Guard(resolve=resolving(PUBLIC)).check("http://example.org/")


@pytest.mark.parametrize(
    ("hosts", "url", "address"),
    [
        ("intranet", "http://intranet:8080/", "10.0.0.7"),
        ("other, Intranet:8080", "http://INTRANET:8080/", "10.0.0.7"),
        ("*.corp.example", "https://wiki.corp.example/", "192.168.3.4"),
        ("10.0.0.0/8", "http://whatever.example:81/", "10.1.2.3"),
        ("127.0.0.1:8123", "http://127.0.0.1:8123/", ""),
        ("[fd00::7]:81", "http://[fd00::7]:81/", ""),
        ("fd00::/8", "http://[fd12::1]/", ""),
        ("169.254.169.254", "http://169.254.169.254/", ""),
        ("localhost", "http://localhost:9/", "127.0.0.1"),
    ],
)
async def test_a_listed_host_is_allowed(hosts: str, url: str, address: str) -> None:
    place = await Guard(hosts, resolve=resolving(address)).check(url)
    assert len(place.addresses) == 1


@pytest.mark.parametrize(
    ("hosts", "url", "address"),
    [
        ("intranet:8080", "http://intranet:8081/", "10.0.0.7"),
        ("intranet", "http://intranet.evil.example/", "10.0.0.7"),
        ("*.corp.example", "http://corp.example/", "10.0.0.7"),
        ("*.corp.example", "http://evilcorp.example/", "10.0.0.7"),
        ("10.0.0.0/24", "http://example.org/", "10.0.1.1"),
        ("intranet", "http://intranet/", "169.254.169.254"),
        ("intranet", "http://intranet/", "0.0.0.0"),
        ("10.0.0.7", "http://intranet/", "10.0.0.8"),
    ],
)
async def test_a_listed_host_allows_no_more_than_it_says(hosts: str, url: str, address: str) -> None:
    with pytest.raises(Forbidden):
        await Guard(hosts, resolve=resolving(address)).check(url)


@pytest.mark.parametrize("hosts", ["http://a/", "a b", "10.0.0.0/99", "*", "a:b"])
def test_a_list_that_can_not_be_read_is_said_to_be(hosts: str) -> None:
    with pytest.raises(InvalidRequest, match="web_hosts"):
        Guard(hosts)


async def test_an_unknown_name_can_not_be_found() -> None:
    with pytest.raises(FetchFailed, match="cannot be found"):
        await Guard().check("http://no-such-host.invalid/")


async def test_a_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(guard_module, "RESOLVE_S", 0.05)
    with pytest.raises(FetchFailed, match="no answer within"):
        await Guard(resolve=hangs).check("http://example.org/")


async def test_this_systems_resolver_is_asked_off_the_loop() -> None:
    addresses = await guard_module.resolve_host("localhost", 80)
    assert set(addresses) <= {"127.0.0.1", "::1"}
    assert addresses
    assert threading.main_thread() is threading.current_thread()


async def test_localhost_by_name_is_refused() -> None:
    with pytest.raises(Forbidden, match="of this machine"):
        await Guard().check("http://localhost/")


def test_a_name_in_another_script_is_the_one_that_is_registered() -> None:
    assert normalize_host("Faß.de") == "xn--fa-hia.de"
    assert normalize_host("bücher.example") == "xn--bcher-kva.example"


@given(st.text(max_size=40))
async def test_any_host_is_plain_or_refused(text: str) -> None:
    try:
        plain = normalize_host(text)
    except InvalidRequest:
        return
    assert plain.isascii()
    assert normalize_host(plain) == plain


@given(st.text(max_size=60))
async def test_no_text_breaks_the_guard(text: str) -> None:
    for url in (text, f"http://{text}", f"http://{text}/", f"https://example.org/{text}"):
        try:
            place = await Guard(resolve=resolving(PUBLIC)).check(url)
        except AgentKernelError:
            continue
        assert place.url.isascii()
        assert place.url.startswith(("http://", "https://"))
