"""Open a bus on RabbitMQ: rabbitmq://USER:PASSWORD@HOST:PORT/VHOST?OPTIONS."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.errors import BadUrl
from lockstep.log.network.address import Address, Secret, parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.checks import judge, of_login
from lockstep.log.port import Bus
from lockstep.log.rabbitmq import retention
from lockstep.log.rabbitmq.client import Links
from lockstep.log.rabbitmq.driver import RabbitWire
from lockstep.log.rabbitmq.handshake import Login
from lockstep.runtime import Runtime

PORT = 5552
_GUEST = "guest"
_KNOWN = (*retention.OPTIONS, "amqp_port")
"""The port for other clients is often written into the same URL; nothing is done with it here."""


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> Bus:
    """The bus at an address; raises within about its time-out if nobody answers, or says no."""
    address = read_address(target, options, environ)
    judge(of_login(address), strict=address.strict)
    links = Links(address, login_of(address), runtime)
    try:
        wire = RabbitWire(address, links, runtime)
        judge(wire.check_cheaply(), strict=address.strict)
    except BaseException:
        links.close()
        raise
    return NetworkBus(wire, runtime, patience_s=address.patience_s)


def read_address(target: str, options: Mapping[str, str], environ: Mapping[str, str]) -> Address:
    """The address in a URL, with options that fit each other."""
    address = parse_address("rabbitmq", target, options, environ=environ, default_port=PORT, known=_KNOWN)
    if not address.prefix.isascii():
        raise BadUrl(url=address.safe_url, reason="its option prefix may hold ASCII only")
    for name in _KNOWN:
        address.whole(name, 0)
    return address


def login_of(address: Address) -> Login:
    """Who we are; the server's own guest, unless the URL or the environment says more."""
    user = address.user or _GUEST
    password = address.password or Secret(_GUEST if user == _GUEST else "")
    return Login(user, password, address.path or "/", address.tls, address.timeout_s)
