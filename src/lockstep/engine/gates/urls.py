"""Gates by their URLs.

zookeeper://HOST:PORT,HOST:PORT/ESP?timeout_s=1              a node below /ESP; a session lasts timeout_s
rabbitmq-queue://USER@HOST:5672/VHOST?queue=NAME&timeout_s=5 a queue; who is silent for timeout_s is dead
redis-lock://USER@HOST:6379/DATABASE                         Sensu's keys; a lock is dead after 30 seconds

Passwords as in the URLs of buses: in the URL, in a file (password_file=), or in the environment
(LOCKSTEP_ZOOKEEPER_PASSWORD, LOCKSTEP_RABBITMQ_QUEUE_PASSWORD, LOCKSTEP_REDIS_LOCK_PASSWORD, and the same with _USER
and _PASSWORD_FILE).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.engine.gates.port import Gate
from lockstep.errors import BadConfig, BadUrl
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.driver import login_findings, report_findings
from lockstep.log.urls import split_url
from lockstep.runtime import Runtime

ZOOKEEPER, QUEUE, REDIS = "zookeeper", "rabbitmq-queue", "redis-lock"
_TIMEOUT_S = {ZOOKEEPER: "1", QUEUE: "5", REDIS: "5"}
_FORMS = "write zookeeper://HOST:PORT/ESP, rabbitmq-queue://USER@HOST:PORT/VHOST?queue=NAME or redis-lock://HOST:PORT/0"


def gate_address(url: str, environ: Mapping[str, str]) -> Address:
    """Where the gate of a URL is, once it is seen to be one; nothing is connected."""
    scheme = url.partition(":")[0]
    if scheme not in _TIMEOUT_S:
        raise BadConfig(field="election", value=f"{scheme[:20]}:", reason=_FORMS)
    try:
        _, target, options = split_url(url)
        address = _parsed(scheme, target, {"timeout_s": _TIMEOUT_S[scheme], **options}, environ)
    except BadUrl as error:  # its URL is not repeated, as it may hold a password
        raise BadConfig(field="election", value=f"{scheme}:", reason=error.params["reason"]) from None
    if scheme == QUEUE:
        _check_queue(address)
    elif scheme == REDIS:
        _check_redis(address)
    return address


def open_gate(url: str, runtime: Runtime, environ: Mapping[str, str], *, group: str) -> Gate | None:
    """The gate at a URL, connected; None if there is to be none. Engines of one `group` stand in one line."""
    if not url:
        return None
    address = gate_address(url, environ)
    report_findings(login_findings(address), strict=address.strict)
    if address.scheme == ZOOKEEPER:
        from lockstep.engine.gates.zookeeper import open_zookeeper

        return open_zookeeper(address, runtime, group)
    if address.scheme == REDIS:
        from lockstep.engine.gates.redis_lock import open_redis_lock

        return open_redis_lock(address, runtime)
    from lockstep.engine.gates.semaphore import open_semaphore

    return open_semaphore(address, address.options["queue"], address.options.get("queue_type", "classic"), runtime)


def _parsed(scheme: str, target: str, options: Mapping[str, str], environ: Mapping[str, str]) -> Address:
    if scheme == ZOOKEEPER:
        return parse_address(scheme, target, options, environ=environ, default_port=2181)
    name = scheme.replace("-", "_")  # a dash can't be part of the name of a variable
    known, port = (("queue", "queue_type"), 5672) if scheme == QUEUE else ((), 6379)
    return replace(parse_address(name, target, options, environ=environ, default_port=port, known=known), scheme=scheme)


def _check_redis(address: Address) -> None:
    if len(address.hosts) > 1:
        raise BadConfig(field="election", value=f"{REDIS}:", reason="it names several servers; a lock is on one")
    if address.path and not (address.path.isascii() and address.path.isdigit() and len(address.path) < 6):
        raise BadConfig(field="election", value=f"{REDIS}:", reason=f"its path is the number of a database; {_FORMS}")


def _check_queue(address: Address) -> None:
    from lockstep.engine.gates.semaphore import KINDS

    if "queue" not in address.options:
        raise BadConfig(field="election", value=f"{QUEUE}:", reason=f"it names no queue; {_FORMS}")
    if address.options.get("queue_type", "classic") not in KINDS:
        raise BadConfig(field="election", value=f"{QUEUE}:", reason=f"queue_type must be one of {', '.join(KINDS)}")
