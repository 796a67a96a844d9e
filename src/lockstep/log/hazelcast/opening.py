"""hazelcast://HOST:PORT,HOST:PORT/CLUSTER?backups=1: the bus on a Hazelcast cluster."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.errors import BadUrl
from lockstep.log.hazelcast.checks import BACKUPS_MAX, cluster_findings
from lockstep.log.hazelcast.client import Link
from lockstep.log.hazelcast.driver import HazelcastWire
from lockstep.log.hazelcast.handshake import greet
from lockstep.log.hazelcast.naming import check_prefix
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.checks import judge, of_login
from lockstep.log.port import Bus
from lockstep.runtime import Runtime

PORT = 5701
CLUSTER = "dev"
OPTIONS = ("backups", "append_bytes")
APPEND_BYTES = 32 << 20
"""The cluster sets no limit but the memory of its members."""


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> Bus:
    """The bus at an address; see docs/howto/bus-hazelcast.md."""
    address = parse_address("hazelcast", target, options, environ=environ, default_port=PORT, known=OPTIONS)
    prefix = check_prefix(address.prefix, address.safe_url)
    judge(of_login(address), strict=address.strict)
    backups, append_bytes = _backups(address), address.whole("append_bytes", APPEND_BYTES)
    cluster = address.path or CLUSTER
    hello = greet(address, cluster, runtime.new_id(), runtime.monotonic)
    link = Link(address, cluster, runtime.monotonic, hello.host)
    try:
        judge(cluster_findings(link.server, len(link.members), backups), strict=address.strict)
        wire = HazelcastWire(link, prefix=prefix, backups=backups, append_bytes=append_bytes)
    except BaseException:
        link.close()
        raise
    return NetworkBus(wire, runtime, patience_s=address.patience_s)


def _backups(address: Address) -> int:
    backups = address.whole("backups", 1)
    if backups > BACKUPS_MAX:
        raise BadUrl(url=address.safe_url, reason=f"its option backups may be 0 to {BACKUPS_MAX}, not {backups}")
    return backups
