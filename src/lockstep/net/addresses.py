"""Which addresses may be called, so that a URL that others gave does not reach what only this machine should.

A URL is checked when it is given. A name is resolved when a connection is made: every address it resolves to
is checked, and the connection goes to one of these. So a name that resolves to another address later gains nothing.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address

METADATA = frozenset(
    ip_address(text)
    for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)  # fmt: skip
"""Where clouds keep the credentials of their machines, beside the link-local 169.254.169.254."""
_THIS_NETWORK = ip_network("0.0.0.0/8")
_LAST_32_BITS = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0:0/96"))
"""IPv4-compatible and NAT64 addresses, and those of stateless translation: the last 32 bits are an IPv4 address."""
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
"""NAT64 prefixes of a site may have any of the lengths below."""
_PREFIX_BITS = (48, 56, 64, 96)
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
_MASK_32 = (1 << 32) - 1
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What may be called. Each method returns the reason why something may not be, or None if it may."""

    allow_loopback: bool = False
    allow_private: bool = True
    allowed_hosts: tuple[str, ...] = ()
    allowed_ports: tuple[int, ...] = ()

    def target(self, host: str, port: int) -> str | None:
        """Check the host and the port of a URL; a name passes unless the list of hosts leaves it out."""
        if self.allowed_ports and port not in self.allowed_ports:
            return f"port {port} is not one of the allowed ports"
        return self.host(host)

    def host(self, host: str) -> str | None:
        """Check a host: its form, the list of hosts, and the address if it is one."""
        if not self._is_listed(host):
            return f"host {host} is not one of the allowed hosts"
        literal = _literal(host)
        if literal is not None:
            refusal = self._ip(literal)
            if refusal is None and not _is_plain(host):
                return f"{host} is not a usual way to write an address; write {literal}"
            return refusal
        return None if _NAME.fullmatch(host) else f"{host!r} is not a host name or an address"

    def address(self, text: str) -> str | None:
        """Check an address before a connection to it is opened."""
        try:
            return self._ip(_without_zone(ip_address(text)))
        except ValueError:
            return f"{text!r} is not an address"

    def _is_listed(self, host: str) -> bool:
        name = host.rstrip(".").lower()
        return not self.allowed_hosts or any(_matches(name, wanted.lower()) for wanted in self.allowed_hosts)

    def _ip(self, address: Address) -> str | None:
        for found in (address, *_embedded(address)):
            kind = self._forbidden(found)
            if kind is not None:
                inside = "" if found == address else f", which stands for {found}"
                return f"{address}{inside} is {kind}, which must not be called"
        return None

    def _forbidden(self, address: Address) -> str | None:
        if address.is_loopback:
            return None if self.allow_loopback else "a loopback address"
        never = _never(address)
        if never is not None:
            return never
        is_public = address.is_global and not (isinstance(address, IPv6Address) and address.is_site_local)
        return None if self.allow_private or is_public else "a private address"


def never_called(host: str) -> str | None:
    """Why a host that is an address must not be called under any rules; None for names and other addresses."""
    return AddressRules(allow_loopback=True).host(host) if _literal(host) is not None else None


def _never(address: Address) -> str | None:
    if address.is_unspecified or address in _THIS_NETWORK:
        return "an unspecified address"
    if address.is_link_local:
        return "a link-local address"
    if address in METADATA:
        return "an address of cloud metadata"
    if address.is_multicast:
        return "a multicast address"
    if isinstance(address, IPv4Address) and address.is_reserved:
        return "a reserved address"
    return None


def _embedded(address: Address) -> tuple[Address, ...]:
    """IPv4 addresses that packets to an IPv6 address may end up at."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _LOCAL_NAT64:
        found = (_translated(int(address), bits) for bits in _PREFIX_BITS)
        return tuple(one for one in found if one not in _THIS_NETWORK)  # of a prefix with another length
    number = int(address)
    is_translated = number > 1 and any(
        address in network for network in _LAST_32_BITS
    )  # :: and ::1 stand for themselves
    is_tunnelled = number >> 32 & _MASK_32 in _ISATAP
    return (IPv4Address(number & _MASK_32),) if is_translated or is_tunnelled else ()


def _translated(number: int, prefix_bits: int) -> IPv4Address:
    """The IPv4 address after a NAT64 prefix; bits 64 to 71 of an address belong to no part of it (RFC 6052)."""
    if prefix_bits == 96:
        return IPv4Address(number & _MASK_32)
    before = 64 - prefix_bits
    high = number >> 64 & ((1 << before) - 1)
    low = number >> (56 - (32 - before)) & ((1 << (32 - before)) - 1)
    return IPv4Address(high << (32 - before) | low)


def _without_zone(address: Address) -> Address:
    """The address without the zone that IPv6 addresses may name: with one, it equals no other."""
    return address if isinstance(address, IPv4Address) else IPv6Address(int(address))


def _literal(host: str) -> Address | None:
    """Parse a host that is an address in any form: dotted, decimal, octal, hexadecimal, IPv6."""
    try:
        return _without_zone(ip_address(host.rstrip(".")))
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except (OSError, UnicodeEncodeError):
        return None


def _is_plain(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _matches(name: str, wanted: str) -> bool:
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted
