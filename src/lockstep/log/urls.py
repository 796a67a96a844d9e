"""Bus URLs: which backend, where, and its options.

memory:            a bus of its own in this process
memory:NAME        one that everybody in this process shares who uses the name
lmdb:FOLDER        an embedded bus on disk, for all processes of this machine
lmdb:FOLDER?durability=relaxed&map_bytes=1073741824&replica=FOLDER&async_replica=FOLDER
kafka://HOST:PORT,HOST:PORT   rabbitmq://USER@HOST:PORT/VHOST   redis://HOST:PORT/DB   hazelcast://HOST:PORT/CLUSTER
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode
from weakref import WeakValueDictionary

from lockstep.errors import BackendUnknown, BadConfig, BadUrl, ExtraMissing, UnsupportedByBackend
from lockstep.log.embedded.bus import EmbeddedBus, OpenHistory
from lockstep.log.history import History, NullHistory
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Bus
from lockstep.runtime import Runtime

Backend = Callable[[str, "dict[str, str]", Runtime, bool], Bus]
"""Opens a bus, given the rest of the URL after its scheme, the options, the runtime, and whether to create it."""

_SHARED_BROKERS: WeakValueDictionary[str, MemoryBroker] = (
    WeakValueDictionary()
)  # memory:NAME means the same to all who say it
os.register_at_fork(after_in_child=_SHARED_BROKERS.clear)  # a child's memory is its own, and begins empty


def open_bus(
    url: str,
    runtime: Runtime,
    *,
    create: bool = True,
    backends: Mapping[str, Backend] | None = None,
    histories: Mapping[str, OpenHistory] | None = None,
) -> Bus:
    """Open the bus at a URL. `backends` adds schemes of buses, `histories` schemes of stores for old records."""
    scheme, target, options = split_url(url)
    known = {**BACKENDS, **(backends or {})}
    if scheme not in known:
        raise BackendUnknown(scheme=scheme, known=", ".join(sorted(known)))
    bus = known[scheme](target, options, runtime, create)
    if histories:
        if not isinstance(bus, EmbeddedBus):
            bus.close()
            raise UnsupportedByBackend(bus=bus.url, feature="keep old records in a history")
        bus.own_histories = histories
    return bus


def split_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Split a URL into scheme, target and options. Raises BadUrl."""
    if not isinstance(url, str) or ":" not in url:
        raise BadUrl(url=url, reason="it has no scheme")
    scheme, rest = url.split(":", 1)
    target, _, query = rest.partition("?")
    shown = without_secret(url)
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        # What is wrong is not shown: with a ? in a password it is a part of that.
        reason = "the part after its ? is not NAME=VALUE&NAME=VALUE; write a ? in a password as %3F"
        raise BadUrl(url=shown, reason=reason) from None
    options = dict(pairs)
    for name, value in pairs:
        if options[name] != value:
            raise BadUrl(url=shown, reason=f"it gives {name!r} twice")
        if not value:
            raise BadUrl(url=shown, reason=f"its option {name!r} is empty")
    return scheme, target, options


def without_secret(url: str) -> str:
    """A URL without its password. Everything before the last @ may be one, even if it is not escaped."""
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{login.partition(':')[0]}{at}{place}" if separator and at else url


def reopened_by(bus: Bus) -> str:
    """The URL by which other processes of this user open a bus again: with its options, and without its password.

    A password that the URL gave must be in their environment; see `password_variable`.
    """
    return getattr(bus, "address", None) or bus.url


def password_variable(url: str) -> tuple[str, str] | None:
    """The environment variable for the password that a URL gives, and the password; None if it gives none."""
    scheme, separator, rest = url.partition("://")
    password = unquote(rest.rpartition("@")[0].partition(":")[2])
    return (f"LOCKSTEP_{scheme.upper()}_PASSWORD", password) if separator and password else None


def _open_memory(target: str, options: dict[str, str], runtime: Runtime, create: bool) -> Bus:  # noqa: ARG001
    if options:
        raise BadUrl(url=f"memory:{target}", reason=f"it takes no option {next(iter(options))!r}")
    broker = _SHARED_BROKERS.setdefault(target, MemoryBroker()) if target else MemoryBroker()
    return broker.bus(runtime, f"memory:{target}")


def _open_lmdb(target: str, options: dict[str, str], runtime: Runtime, create: bool) -> Bus:
    from lockstep.log.lmdb.backend import open_lmdb
    from lockstep.log.lmdb.settings import StoreOptions

    if not target:
        raise BadUrl(url="lmdb:", reason="it names no folder")
    known = ("durability", "map_bytes", "replica", "async_replica")
    for name in options:
        if name not in known:
            raise BadUrl(url=f"lmdb:{target}", reason=f"it has no option {name!r}; there are {', '.join(known)}")
    asked = StoreOptions(
        durability=options.get("durability"),
        map_bytes=_whole_number("map_bytes", options.get("map_bytes")),
        replica=_absolute(options.get("replica")),
        async_replica=_absolute(options.get("async_replica")),
    )
    folder = Path(target).expanduser().absolute()

    def open_history(url: str, stream: str) -> History:
        return _open_history(url, stream, folder, runtime)

    return open_lmdb(folder, asked, create=create, runtime=runtime, url=f"lmdb:{target}", open_history=open_history)


def _open_history(url: str, stream: str, bus_folder: Path, runtime: Runtime) -> History:
    from lockstep.log.lmdb.backend import LmdbHistory

    scheme, target, _ = split_url(url)
    if scheme == "null":
        return NullHistory()
    if scheme != "lmdb" or not target:
        raise BadConfig(field="history", value=without_secret(url), reason="write lmdb:FOLDER or null:")
    folder = Path(target).expanduser().absolute()
    if folder.resolve() == bus_folder.resolve():
        raise BadConfig(field="history", value=without_secret(url), reason="it must be another folder than the bus")
    return LmdbHistory(folder, stream, runtime)


_SERVERS = {
    "kafka": ("confluent_kafka", "lockstep.log.kafka.driver"),
    "rabbitmq": ("rstream", "lockstep.log.rabbitmq.driver"),
    "redis": ("redis", "lockstep.log.redis.bus"),
    "hazelcast": ("hazelcast", "lockstep.log.hazelcast.driver"),
}
"""For each network bus the client package it needs and the module with its `open_bus`, imported on first use."""


def _open_server(scheme: str) -> Backend:
    def open_one(target: str, options: dict[str, str], runtime: Runtime, create: bool) -> Bus:  # noqa: ARG001
        package, module = _SERVERS[scheme]
        if importlib.util.find_spec(package) is None:
            raise ExtraMissing(extra=scheme, package=package)
        opener = importlib.import_module(module)
        bus: Bus = opener.open_bus(target, options, runtime, os.environ)
        query = urlencode(options)
        bus.address = without_secret(f"{scheme}:{target}{'?' if query else ''}{query}")  # type: ignore[attr-defined]
        return bus

    return open_one


def _absolute(folder: str | None) -> str | None:
    return None if folder is None else str(Path(folder).expanduser().absolute())


def _whole_number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BadConfig(field=name, value=text, reason="it must be a whole number")
    return int(text)


BACKENDS: Mapping[str, Backend] = {
    "memory": _open_memory, "lmdb": _open_lmdb, **{scheme: _open_server(scheme) for scheme in _SERVERS},
}  # fmt: skip
