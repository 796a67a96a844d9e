"""Which addresses may be called, for every address there is."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.net.addresses import AddressRules, never_called

ALL, NONE = AddressRules(allow_loopback=True, allow_private=True), AddressRules(allow_private=False)
NEVER = [IPv4Network(text) for text in ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "168.63.129.16/32")]
NEVER += [IPv4Network("100.100.100.200/32"), IPv4Network("192.0.0.192/32")]
OWN = IPv4Network("127.0.0.0/8")
PRIVATE = [IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]

INSIDE = st.sampled_from([*NEVER, OWN, *PRIVATE]).flatmap(
    lambda network: st.integers(int(network[0]), int(network[-1])).map(IPv4Address)
)
ANY = st.one_of(INSIDE, st.integers(0, 2**32 - 1).map(IPv4Address))


def expected(address: IPv4Address, rules: AddressRules) -> bool:
    """Whether an address may be called, from the lists above."""
    if any(address in network for network in NEVER):
        return False
    if address in OWN:
        return rules.allow_loopback
    return rules.allow_private or address.is_global


RULES = st.builds(AddressRules, allow_loopback=st.booleans(), allow_private=st.booleans())


@given(address=ANY, rules=RULES)
def test_an_address_may_be_called_or_not(address, rules):
    assert (rules.address(str(address)) is None) == expected(address, rules)


@given(address=ANY, rules=RULES)
def test_ways_to_write_an_address_do_not_matter(address, rules):
    number, parts = int(address), address.packed
    ways = [str(number), hex(number), f"0{number:o}", ".".join(hex(part) for part in parts),
            f"{parts[0]}.{number & 0xFFFFFF}", f"{parts[0]}.{parts[1]}.{number & 0xFFFF}"]  # fmt: skip
    for way in ways:
        assert socket.inet_aton(way) == parts
        refusal = rules.host(way)
        assert refusal is not None
        assert ("must not be called" in refusal) is not expected(address, rules), way


@given(address=ANY, rules=RULES)
def test_an_address_inside_another_does_not_escape(address, rules):
    number = int(address)
    wraps = {
        "mapped": (0xFFFF << 32) + number,
        "6to4": (0x2002 << 112) + (number << 80),
        "nat64": (0x64FF9B << 96) + number,
        "translated": (0xFFFF << 48) + number,
        "isatap": (0x20010DB8 << 96) + (0x5EFE << 32) + number,
        "isatap of a public address": (0x20010DB8 << 96) + (0x02005EFE << 32) + number,
    }
    for way, value in wraps.items():
        if not expected(address, rules):
            assert rules.address(str(IPv6Address(value))) is not None, way


@given(address=ANY, rules=RULES, bits=st.sampled_from([48, 56, 64, 96]))
def test_an_address_behind_a_prefix_of_the_site_does_not_escape(address, rules, bits):
    """RFC 6052: the address follows the prefix, and leaves out bits 64 to 71."""
    prefix, number = 0x64FF9B0001 << 80, int(address)
    before = 64 - bits
    high, low = number >> (32 - before), number & ((1 << (32 - before)) - 1)
    value = prefix + number if bits == 96 else prefix + (high << 64) + (low << (24 + before))
    if not expected(address, rules) and address not in NEVER[0]:
        assert rules.address(str(IPv6Address(value))) is not None
    if bits == 96 and address.is_global and expected(address, rules):
        assert rules.address(str(IPv6Address(value))) is None


@pytest.mark.parametrize("address", ["fd00:ec2::254", "fd20:ce::254", "fe80::1", "::1", "::ffff:169.254.169.254"])
def test_a_zone_makes_no_other_address(address):
    for zone in ("%eth0", "%25eth0", "%1"):
        assert AddressRules().address(f"{address}{zone}") is not None
        assert AddressRules().host(f"{address}{zone}") is not None


def test_addresses_of_a_site_are_private():
    assert AddressRules(allow_private=False).address("fec0::1") is not None


def test_a_name_is_no_address():
    for name in ("example.com", "a_b.example", "xn--bcher-kva.example", "127.0.0.1.example.com", "dead.beef"):
        assert ALL.host(name) is None
        assert never_called(name) is None


@pytest.mark.parametrize("host", ["", "a b", "a/b", "%31", "a:b:c", "-a.example", "..", "ex\u2024ample.com"])
def test_what_is_neither_name_nor_address_is_refused(host):
    assert ALL.host(host) is not None


def test_hosts_of_brokers_are_refused_only_if_they_are_never_called():
    assert never_called("127.0.0.1") is None
    assert never_called("10.0.0.1") is None
    assert "link-local" in never_called("169.254.169.254")
