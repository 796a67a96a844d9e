"""Opening a bus on Redis by its URL.

redis://127.0.0.1:6379/0?prefix=shop
redis://app@one:6379,two:6379?password_file=/run/secrets/redis&tls=true&wait_replicas=1&wait_ms=500
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.errors import BadUrl
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.checks import judge, of_login
from lockstep.log.redis import checks
from lockstep.log.redis.bus import RedisBus
from lockstep.log.redis.client import Server
from lockstep.log.redis.connecting import Connector
from lockstep.log.redis.layout import Keys
from lockstep.runtime import Runtime

OPTIONS = ("wait_replicas", "wait_ms")
_PORT = 6379


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> RedisBus:
    """The bus at what stands behind redis: in a URL."""
    address = parse_address("redis", target, options, environ=environ, default_port=_PORT, known=OPTIONS)
    keys = Keys(_prefix(address))
    judge(of_login(address), strict=address.strict)
    wait_replicas, wait_ms = address.whole("wait_replicas", 0), _wait_ms(address)
    server = Server(Connector(address, _database(address)), runtime)
    try:
        facts = checks.ask_facts(server, patient=False)
        found = checks.findings(facts, wait_replicas) + (checks.lone(facts) if address.strict else [])
        judge(found, strict=address.strict)
    except BaseException:
        server.close()
        raise
    return RedisBus(server, keys, facts, runtime, wait_replicas=wait_replicas, wait_ms=wait_ms)


def _database(address: Address) -> int:
    if address.path and not (address.path.isascii() and address.path.isdigit()):
        raise BadUrl(url=address.safe_url, reason=f"its database must be a number, not {address.path!r}")
    return int(address.path or 0)


def _prefix(address: Address) -> str:
    if set("{}") & set(address.prefix):
        raise BadUrl(url=address.safe_url, reason="its option prefix must not have braces")
    return address.prefix


def _wait_ms(address: Address) -> int:
    most = int(address.timeout_s * 1000)
    wait_ms = address.whole("wait_ms", max(most // 2, 1))
    if not 0 < wait_ms < most:
        reason = f"its option wait_ms must be above 0 and below timeout_s, {most} ms"
        raise BadUrl(url=address.safe_url, reason=reason)
    return wait_ms
