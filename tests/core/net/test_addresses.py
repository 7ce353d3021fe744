import ipaddress
import socket
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_kernel.core.net.addresses import Address, is_own_address, refusal_reason, requires_address_rule

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "172.15.0.1",
    "172.32.0.1",
    "100.63.0.1",
    "100.128.0.1",
    "2606:4700::1",
]
IPV4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
IPV6 = st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)


@pytest.mark.parametrize("text", PUBLIC)
def test_the_open_internet_may_be_fetched_from(text: str) -> None:
    assert refusal_reason(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.0.0.0", "this network"),
        ("0.1.2.3", "this network"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "carrier"),
        ("100.127.255.255", "carrier"),
        ("127.0.0.1", "this machine"),
        ("127.255.255.254", "this machine"),
        ("169.254.169.254", "link-local"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.8", "protocol"),
        ("192.0.2.7", "documentation"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmarks"),
        ("198.19.255.255", "benchmarks"),
        ("198.51.100.4", "documentation"),
        ("203.0.113.4", "documentation"),
        ("224.0.0.251", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("::1", "this machine"),
        ("::7f00:1", "old form"),
        ("::8.8.8.8", "old form"),
        ("::ffff:127.0.0.1", "this machine"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:0:127.0.0.1", "this machine"),
        ("64:ff9b::127.0.0.1", "this machine"),
        ("64:ff9b::169.254.169.254", "link-local"),
        ("64:ff9b:1::1", "translator"),
        ("100::1", "packets are discarded"),
        ("2001::1", "Teredo"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("2002:808:808::1", "6to4"),
        ("2606:4700::5efe:10.0.0.1", "private"),
        ("3fff::1", "documentation"),
        ("4000::1", "reserved"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fe80::1", "link-local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
    ],
)
def test_a_special_address_is_refused_with_its_kind(text: str, reason: str) -> None:
    assert reason in refusal_reason(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "::ffff:0:8.8.8.8"])
def test_a_translated_public_address_is_what_it_stands_for(text: str) -> None:
    """Where there is only IPv6, every name of the IPv4 internet resolves to 64:ff9b::/96."""
    assert refusal_reason(ipaddress.ip_address(text)) == ""


@given(st.one_of(IPV4, IPV6))
@example(ipaddress.ip_address("192.88.99.1"))
def test_what_the_standard_library_does_not_call_global_is_never_fetched_from(address: Address) -> None:
    translated = address.version == 6 and (address.ipv4_mapped or address in ipaddress.ip_network("::ffff:0:0:0/96"))
    if address.is_multicast or not (address.is_global or translated):
        assert refusal_reason(address)


@given(IPV4)
def test_no_form_of_ipv6_makes_an_ipv4_address_better_than_it_is(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    forms = [number, 0xFFFF << 32 | number, 0xFFFF << 48 | number, 0x64FF9B << 96 | number]
    forms += [
        0x2002 << 112 | number << 80,
        0x20010000 << 96 | (number ^ 0xFFFFFFFF),
        0x26064700 << 96 | 0x5EFE << 32 | number,
    ]
    for form in map(ipaddress.IPv6Address, forms):
        if refusal_reason(address):
            assert refusal_reason(form), form


@pytest.mark.parametrize("text", ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0", "ff02::1"])
def test_no_name_leads_to_the_metadata_of_a_cloud_or_to_nobody(text: str) -> None:
    assert requires_address_rule(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["127.0.0.1", "10.1.2.3", "fd12::1", "8.8.8.8"])
def test_a_name_that_is_allowed_may_be_private(text: str) -> None:
    assert not requires_address_rule(ipaddress.ip_address(text))


def test_this_machine_knows_its_own_addresses() -> None:
    own = _own_address()
    assert is_own_address(ipaddress.ip_address(own))
    assert is_own_address(ipaddress.ip_address(f"::ffff:{own}"))
    assert not is_own_address(ipaddress.ip_address("192.0.2.1"))


def _own_address() -> str:
    """Return the address of a network card that is up, if there is one."""
    import fcntl

    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
        if (found := socket.inet_ntoa(answer[20:24])) != "127.0.0.1":
            return found
    return "127.0.0.1"
